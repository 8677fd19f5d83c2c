#pragma once
#include <filesystem>
#include <optional>

#include "train/run/output_folder.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_context.h"

namespace qtrain {

/// A run that is ready for its first step but has neither weights nor a past.
struct UnstartedRun {
  const RunContext& run;
  const TrainingObjects& objects;
  const OutputFolder& output;
  RunCheckpoints& checkpoints;
};

/// Brings a run to where it begins: to the first checkpoint of `from` that is not damaged, which is returned, or else
/// to the weights that its config names. Says so, and puts away what of earlier runs is not of this one. Errors: those
/// of load_first_whole and load_weights.
std::optional<std::filesystem::path> start_or_resume(const UnstartedRun& start, const ResumeFrom& from);

}  // namespace qtrain
