#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "app/reproduction/sealed_run.h"
#include "core/log.h"

namespace qtrain {

/// A stretch of steps from a checkpoint, or from the start if there is none, to the states of a later step.
struct Stretch {
  std::filesystem::path from;
  RedoneSteps steps;
  std::vector<SealedState> ends;
  std::int64_t before = 0;     ///< the step of the state before it; earlier steps are also those of other stretches
  bool shows_records = false;  ///< whether resolved_config.json describes it
};

/// The stretches between the states, which are sorted by step. No run resumes from a checkpoint without optimizer
/// state, so a stretch starts before such a checkpoint.
std::vector<Stretch> stretches_between(const std::vector<SealedState>& states);

/// Repeats stretches in a separate folder: the one that leads to the result (or to the newest checkpoint if there is no
/// result), the one that leads to the best checkpoint if the result has its weights, and others chosen at random, of at
/// least as many steps as the options ask for. Throws ErrorKind::disk, and on interruption.
void redo_some(const RecordedRun& run, std::vector<Stretch> stretches, const VerificationOptions& options,
               Verification& v);

}  // namespace qtrain
