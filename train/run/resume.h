#pragma once
#include <filesystem>
#include <optional>

#include "train/run/output_folder.h"
#include "train/run/run_checkpoints.h"

namespace qtrain {

/// Loads the first undamaged checkpoint that the run may resume from and returns it, or else initializes the weights as
/// the config says. Logs which, and moves results of earlier runs out of the way. Throws as load_first_whole and
/// load_weights do.
std::optional<std::filesystem::path> start_or_resume(Run& run, const OutputFolder& output, RunCheckpoints& checkpoints);

}  // namespace qtrain
