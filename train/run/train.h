#pragma once
#include <cstdint>
#include <string>

#include "config/config.h"
#include "core/log.h"
#include "dist/collective.h"

namespace qtrain {

/// The outcome of a training run.
struct TrainingResult {
  int exit_code = 0;  ///< 75 when a signal stopped it
  Json json;  ///< for --json: output_dir, step, max_steps; for a finished run also the contents of train_results.json
  std::string summary = {};  ///< for a finished run, one line for the terminal
};

/// What messages.jsonl says of a run's end in addition if it was a signal, and not TrainingStart::stop_after.
inline constexpr const char* kStoppedBySignal = ", by a signal";

/// One training run: loads the data and model of a config, trains to the last step, evaluates and saves as configured.
/// `resume`: "auto" (the newest checkpoint in output_dir, or a fresh start), "never", or a checkpoint folder. With
/// several ranks, each calls train(); rank 0 writes the output directory.
struct TrainingStart {
  const ResolvedConfig& config;
  std::string resume;
  Collective& ranks;
  int gpu = 0;                  ///< index of this rank's GPU, if it uses one
  std::int64_t stop_after = 0;  ///< stop after this update as if signaled; 0: do not
  bool overwrite = false;       ///< even if output_dir holds weights that no run wrote
};
TrainingResult train(const TrainingStart& start, Log& log);

}  // namespace qtrain
