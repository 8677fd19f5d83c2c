#pragma once
#include <string>

#include "config/config.h"
#include "core/log.h"

namespace qtrain {

/// What became of a training run.
struct TrainingResult {
  int exit_code = 0;  ///< 75 when a signal stopped it
  Json json;          ///< for --json: output_dir, step, max_steps; when done the contents of train_results.json too
  std::string summary = {};  ///< when done, the same in a line for people
};

/// One training run: loads data and model of a config, trains to the last step, evaluates and saves as the config says.
/// `resume`: "auto" (the newest checkpoint in output_dir, else start), "never", or the folder of a checkpoint.
TrainingResult train(const ResolvedConfig& config, const std::string& resume, Log& log);

}  // namespace qtrain
