#pragma once
#include <cstdint>
#include <string>

#include "config/config.h"
#include "core/log.h"
#include "dist/collective.h"

namespace qtrain {

/// What became of a training run.
struct TrainingResult {
  int exit_code = 0;  ///< 75 when a signal stopped it
  Json json;          ///< for --json: output_dir, step, max_steps; when done the contents of train_results.json too
  std::string summary = {};  ///< when done, the same in a line for people
};

/// One training run: loads data and model of a config, trains to the last step, evaluates and saves as the config says.
/// `resume`: "auto" (the newest checkpoint in output_dir, else start), "never", or the folder of a checkpoint.
/// Of several ranks, each calls it; the one with number 0 writes the output directory.
struct TrainingStart {
  const ResolvedConfig& config;
  std::string resume;
  Collective& ranks;
  int gpu = 0;                  ///< of this rank, where it runs on one
  std::int64_t stop_after = 0;  ///< as if told to stop after this update; 0: not
  bool overwrite = false;       ///< also weights in output_dir that no run has written
};
TrainingResult train(const TrainingStart& start, Log& log);

}  // namespace qtrain
