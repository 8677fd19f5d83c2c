#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// Writes a run to disk in the format of a tracking tool, which reads or uploads it later; nothing goes over the
/// network. All functions throw ErrorKind::disk.
class Tracker {
 public:
  virtual ~Tracker() = default;
  /// Appends a row of metrics.jsonl.
  virtual void append(const Json& row) = 0;
  /// Records the end of the run; exit code 0 means it is done. Not called if the run is killed.
  virtual void end(int exit_code) = 0;
};

struct TrackedRun {
  std::filesystem::path output;
  Json config = Json::object();   ///< {key: value}
  std::vector<Json> rows = {};    ///< valid rows of an earlier part of the run
  std::int64_t resumed_step = 0;  ///< 0 for a new run
};

/// The name of a logged number in TensorBoard and W&B, as in transformers: "train/loss", "eval/loss".
std::string tag_of(const std::string& key);
/// The name of a run: the last component of its path.
std::string run_name(const std::filesystem::path& output);
/// The value of an environment variable, or `otherwise` if it is unset or empty.
std::string from_environment(const char* name, const std::string& otherwise);
/// A unique id of `length` hexadecimal digits.
std::string fresh_id(std::size_t length);

/// Offline run of W&B in the output directory (wandb/offline-run-TIME-ID/run-ID.wandb), which `wandb sync` uploads.
/// Reads WANDB_PROJECT, WANDB_ENTITY and WANDB_NAME from the environment. A resumed run keeps its id, and its file is
/// rewritten. Source: wandb 0.31, wandb_internal.proto and the LevelDB log format.
std::unique_ptr<Tracker> make_wandb_run(const TrackedRun& run);

/// File store of MLflow in the output directory (mlruns/). Reads MLFLOW_EXPERIMENT_NAME and MLFLOW_RUN_NAME from the
/// environment. A resumed run keeps its id, and its metrics are rewritten. Source: mlflow 3.17, file_store.py.
std::unique_ptr<Tracker> make_mlflow_run(const TrackedRun& run);

}  // namespace qtrain
