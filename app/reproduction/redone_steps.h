#pragma once
#include <filesystem>
#include <vector>

#include "app/reproduction/sealed_run.h"
#include "core/log.h"

namespace qtrain {

/// From a checkpoint, or the start where there is none, to the states of a later step.
struct Stretch {
  std::filesystem::path from;
  RedoneSteps steps;
  std::vector<SealedState> ends;
};

/// What lies between the states, which are in the order of their steps. A run goes on from no checkpoint without the
/// optimizer's state: such stretches begin before it.
std::vector<Stretch> stretches_between(const std::vector<SealedState>& states);

/// Does stretches again in a folder of their own: the one that leads to the result, or to the newest checkpoint where
/// there is none, and others, chosen at random, of at least so many steps as the options say. Errors: ErrorKind::disk,
/// and of an interruption.
void redo_some(const RecordedRun& run, std::vector<Stretch> stretches, const VerificationOptions& options,
               Verification& v);

}  // namespace qtrain
