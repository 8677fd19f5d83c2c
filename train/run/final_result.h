#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "train/run/run_checkpoints.h"
#include "train/run/run_log.h"

namespace qtrain {

/// What a finished run reports.
struct FinalResult {
  Json totals;          ///< the contents of train_results.json
  std::string summary;  ///< one line for the terminal
};

/// What an earlier start left in the output directory of a run that was over when this start began.
struct EarlierEnd {
  bool has_config = false;  ///< resolved_config.json is that of the start that ended the run
  bool has_result = false;  ///< the result is whole, and this start has nothing to change in it; alike on all ranks
};
/// For a run whose weights and state are in place. `resumed`: the checkpoint that they are from.
EarlierEnd earlier_end(const Run& run, const OutputFolder& output, const std::optional<std::filesystem::path>& resumed);

/// For a run that has completed its last step: logs the totals (the logged ones of an earlier process if no step was
/// left to do) and saves the final model, unless an earlier start left the result. Throws ErrorKind::disk.
FinalResult finish_run(Run& run, RunLog& run_log, RunCheckpoints& checkpoints, const EarlierEnd& earlier);

}  // namespace qtrain
