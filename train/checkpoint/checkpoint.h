#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "dist/collective.h"
#include "optim/optimizer.h"
#include "train/checkpoint/run_state.h"
#include "train/setup/model_setup.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// What a run was made of: its config with the origin of each value, and hashes of the files it read.
inline constexpr const char* kResolvedConfig = "resolved_config.json";
/// The totals of a finished run; kConfigDigest is the key of resolved_config.json's SHA-256 in it.
inline constexpr const char* kTrainResults = "train_results.json";
inline constexpr const char* kConfigDigest = "resolved_config_sha256";
/// The state of a checkpoint, with the identity of its run; other results have none.
inline constexpr const char* kTrainingState = "training_state.json";
/// In transformers' format, with the logged rows.
inline constexpr const char* kTrainerState = "trainer_state.json";
/// Every logged row; kMetricsSeal is the key in the results of the file's size and SHA-256.
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kMetricsSeal = "metrics_jsonl";

/// What a checkpoint saves and restores; owns nothing.
struct TrainingObjects {
  Ctx& ctx;
  const ModelSetup& setup;
  Runner& runner;
  const TextFolder& text;
  Optimizer& optimizer;
  RunState& state;
  const TrainingSection& training;
  const StepPlan& plan;
  const Json& identity;  ///< run_identity, which a resume compares
  Collective& ranks;

  /// Whether the leading rank has everything that is saved; otherwise each rank writes what it owns.
  bool is_whole() const { return !setup.model->options().sharding.divides_trained(); }
  /// Whether this rank writes shards: the ranks of the first replica do.
  bool writes_part() const { return !is_whole() && ranks.rank() < setup.model->options().sharding.ranks; }
};

/// Writes `checkpoint-<step>` below `output` into a temporary folder, the manifest last, then renames it; only then is
/// an older checkpoint of the same step removed. It contains everything needed to continue the run bit for bit, in the
/// same files however the state is sharded. Collective: returns once everything is written. Returns its path. Throws
/// ErrorKind::disk, or ErrorKind::non_finite if the last update made a weight NaN or infinite; then nothing is written.
std::filesystem::path save_checkpoint(const TrainingObjects& run, const std::filesystem::path& output);

/// Writes the result of a run into `output`, with a manifest of its own: the model or adapter in transformers' or
/// PEFT's format, trainer_state.json, and `results` as train_results.json with the SHA-256 of the current
/// resolved_config.json and metrics.jsonl. Collective. Throws ErrorKind::disk or ErrorKind::non_finite.
void save_final(const TrainingObjects& run, const std::filesystem::path& output, const Json& results);

/// The date that the chat template used in the run of the first of `checkpoints` with an undamaged state; none if the
/// template does not use the date.
std::optional<std::string> saved_template_date(const std::vector<std::filesystem::path>& checkpoints);

/// Restores state, weights and optimizer, and logs what the run does differently from here on. Throws ErrorKind::usage
/// if the checkpoint belongs to another run (naming every value that differs) or to an older version of the program,
/// and ErrorKind::input if a file does not match its manifest or is of another step. Not collective: once all ranks
/// have loaded, the caller measures the model's rows.
void load_checkpoint(TrainingObjects& run, const std::filesystem::path& checkpoint, Log& log);

/// The checkpoints that a run may resume from, newest first, or the one that the user named.
struct ResumeFrom {
  std::vector<std::filesystem::path> checkpoints;
  bool named = false;
};
/// The checkpoint that the run resumed from, and the names of damaged ones that were skipped.
struct Resumed {
  std::filesystem::path from;
  std::vector<std::filesystem::path> damaged;
};
/// Restores the first undamaged checkpoint and warns about each damaged one before it. Returns none for an empty list.
/// Throws as load_checkpoint does, and ErrorKind::input if all are damaged: the first one's error with advice on what
/// else to do.
std::optional<Resumed> load_first_whole(TrainingObjects& run, const ResumeFrom& where, Log& log);

}  // namespace qtrain
