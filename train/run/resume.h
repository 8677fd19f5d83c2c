#pragma once
#include <filesystem>
#include <optional>

#include "train/run/output_folder.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_context.h"

namespace qtrain {

/// A run that is ready to start but has neither weights nor state yet.
struct UnstartedRun {
  const RunContext& run;
  const TrainingObjects& objects;
  const OutputFolder& output;
  RunCheckpoints& checkpoints;
};

/// Loads the first undamaged checkpoint of `from` and returns it, or else initializes the weights as the config says.
/// Logs which, and moves results of earlier runs out of the way. Throws as load_first_whole and load_weights do.
std::optional<std::filesystem::path> start_or_resume(const UnstartedRun& start, const ResumeFrom& from);

}  // namespace qtrain
