#pragma once
#include <filesystem>
#include <string>

#include "train/run/run_checkpoints.h"
#include "train/run/run_context.h"
#include "train/run/run_log.h"
#include "train/run/run_model.h"

namespace qtrain {

/// What a run that is done has come to.
struct FinalResult {
  Json totals;          ///< the contents of train_results.json
  std::string summary;  ///< a line for people
};
/// A run that has done its last step.
struct FinishedRun {
  const TrainingObjects& objects;
  const RunModel& model;
  RunLog& run_log;
  RunCheckpoints& checkpoints;
  const std::filesystem::path& output;
  int ranks = 1;
};
/// Logs the totals, those of an earlier start where no step was left, and saves the final model. Errors:
/// ErrorKind::disk.
FinalResult finish_run(const RunContext& run, const FinishedRun& finished);

}  // namespace qtrain
