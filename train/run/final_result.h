#pragma once
#include <filesystem>
#include <string>

#include "train/run/run_checkpoints.h"
#include "train/run/run_context.h"
#include "train/run/run_log.h"
#include "train/run/run_model.h"

namespace qtrain {

/// What a finished run reports.
struct FinalResult {
  Json totals;          ///< the contents of train_results.json
  std::string summary;  ///< one line for the terminal
};
/// A run that has completed its last step.
struct FinishedRun {
  const TrainingObjects& objects;
  const RunModel& model;
  RunLog& run_log;
  RunCheckpoints& checkpoints;
  const std::filesystem::path& output;
  int ranks = 1;
};
/// Logs the totals (the logged ones of an earlier process if no step was left to do) and saves the final model. Throws
/// ErrorKind::disk.
FinalResult finish_run(const RunContext& run, const FinishedRun& finished);

}  // namespace qtrain
