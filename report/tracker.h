#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// A run as a tracking tool keeps it on the disk, for that tool to read or send later; nothing goes over the network.
/// Errors of all: ErrorKind::disk.
class Tracker {
 public:
  virtual ~Tracker() = default;
  /// A row of metrics.jsonl.
  virtual void append(const Json& row) = 0;
  /// The run has ended, with 0 where it is done. A run that is killed does not come to this.
  virtual void end(int exit_code) = 0;
};

struct TrackedRun {
  std::filesystem::path output;
  Json config = Json::object();   ///< {key: value}
  std::vector<Json> rows = {};    ///< of an earlier part of the run that still count
  std::int64_t resumed_step = 0;  ///< 0: a new run
};

/// The name of a logged number in TensorBoard and W&B, as transformers has it: "train/loss", "eval/loss".
std::string tag_of(const std::string& key);
/// The last part of a path, as the name of a run.
std::string run_name(const std::filesystem::path& output);
/// The value of a variable of the environment, where it has one.
std::string from_environment(const char* name, const std::string& otherwise);
/// An id that no other run has: so many of the digits 0 to 9 and letters a to f.
std::string fresh_id(std::size_t length);

/// W&B's offline run, wandb/offline-run-TIME-ID/run-ID.wandb in the output directory, as its client writes it; `wandb
/// sync` sends it. The environment may name WANDB_PROJECT, WANDB_ENTITY and WANDB_NAME. A run that goes on keeps its
/// id, and its file is written anew. Source: wandb 0.31, wandb_internal.proto and the LevelDB log format.
std::unique_ptr<Tracker> make_wandb_run(const TrackedRun& run);

/// MLflow's file store, mlruns/ in the output directory; MLFLOW_EXPERIMENT_NAME and MLFLOW_RUN_NAME may name experiment
/// and run. A run that goes on keeps its id, and its metrics are written anew. Source: mlflow 3.17, file_store.py.
std::unique_ptr<Tracker> make_mlflow_run(const TrackedRun& run);

}  // namespace qtrain
