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

/// What a run was made of: its config with the origin of each value, and hashes of what it read.
inline constexpr const char* kResolvedConfig = "resolved_config.json";
/// What a run has come to in numbers, and in it the SHA-256 of that.
inline constexpr const char* kTrainResults = "train_results.json";
inline constexpr const char* kConfigDigest = "resolved_config_sha256";
/// As transformers writes it, with the logged rows.
inline constexpr const char* kTrainerState = "trainer_state.json";
/// Every logged row, and in the results the number of bytes and the SHA-256 that the file had.
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kMetricsSeal = "metrics_jsonl";

/// What a checkpoint saves and restores; nothing here is owned.
struct TrainingObjects {
  Ctx& ctx;
  ModelSetup& setup;
  const TextFolder& text;
  Optimizer& optimizer;
  RunState& state;
  const TrainingSection& training;
  const StepPlan& plan;
  const Json& identity;  ///< run_identity: what a resume is compared with
  Collective& ranks;

  /// Whether the rank that leads has all that is saved; else each writes what it owns.
  bool is_whole() const { return !setup.model->options().sharding.divides_trained(); }
  /// Whether this rank writes a part of what is divided: those of the first group do.
  bool writes_part() const { return !is_whole() && ranks.rank() < setup.model->options().sharding.ranks; }
};

/// Writes `checkpoint-<step>` below `output`: into a temporary folder, the manifest last, then one rename; an older one
/// of the same step goes only then. Everything that continues the run bit for bit is in it, in the same files however
/// it is divided among ranks. Every rank calls it, and none returns before all is written. Returns its path. Errors:
/// ErrorKind::disk; ErrorKind::non_finite where the last update made a weight NaN or infinite: nothing is written then.
std::filesystem::path save_checkpoint(const TrainingObjects& run, const std::filesystem::path& output);

/// Writes what a run comes to into `output`, sealed by a manifest of its own: the model or adapter as transformers /
/// PEFT write it, trainer_state.json, and `results` as train_results.json, with the SHA-256 of resolved_config.json
/// and metrics.jsonl as they lie there. Every rank calls it. Errors: ErrorKind::disk, ErrorKind::non_finite.
void save_final(const TrainingObjects& run, const std::filesystem::path& output, const Json& results);

/// The day that the chat template wrote in the run of the first of `checkpoints` whose state is whole, where it writes
/// it.
std::optional<std::string> saved_template_date(const std::vector<std::filesystem::path>& checkpoints);

/// Restores state, weights and optimizer, and says what the run does differently from here on. ErrorKind::usage when
/// the checkpoint belongs to another run (names every value that differs) or to an earlier version of the program;
/// ErrorKind::input when a file is not the one that its manifest names, or of another step. Does nothing with other
/// ranks: the caller measures the rows of the model when all have loaded.
void load_checkpoint(TrainingObjects& run, const std::filesystem::path& checkpoint, Log& log);

/// Where a run may go on from, the newest first, or the one that the user has named.
struct ResumeFrom {
  std::vector<std::filesystem::path> checkpoints;
  bool named = false;
};
/// Where it goes on from, and the names of the damaged ones before it.
struct Resumed {
  std::filesystem::path from;
  std::vector<std::filesystem::path> damaged;
};
/// Restores the first checkpoint that is not damaged; a warning names each damaged one before it. None for an empty
/// list. ErrorKind::input when all are damaged: the first one's error, and what else can be done. As load_checkpoint.
std::optional<Resumed> load_first_whole(TrainingObjects& run, const ResumeFrom& where, Log& log);

}  // namespace qtrain
