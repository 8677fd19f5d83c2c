#pragma once
#include <string>

#include "train/run/run_checkpoints.h"
#include "train/run/run_log.h"

namespace qtrain {

/// What a finished run reports.
struct FinalResult {
  Json totals;          ///< the contents of train_results.json
  std::string summary;  ///< one line for the terminal
};
/// For a run that has completed its last step: logs the totals (the logged ones of an earlier process if no step was
/// left to do) and saves the final model. Throws ErrorKind::disk.
FinalResult finish_run(Run& run, RunLog& run_log, RunCheckpoints& checkpoints);

}  // namespace qtrain
