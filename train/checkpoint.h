#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "optim/optimizer.h"
#include "train/run_state.h"
#include "train/setup.h"

namespace qtrain {

/// The day that the chat template writes, among what a resume must agree with.
inline constexpr const char* kTemplateDate = "template_date";

/// What a checkpoint saves and restores; nothing here is owned.
struct TrainingObjects {
  Ctx& ctx;
  ModelSetup& setup;
  const TextFolder& text;
  Optimizer& optimizer;
  RunState& state;
  const TrainingSection& training;
  const StepPlan& plan;
  Json identity;  ///< what a resume must agree with: seeds, batch sizes, hash of the data, adapter
};

/// The model or adapter as transformers / PEFT write it, into `folder`.
void save_final(const TrainingObjects& run, const std::filesystem::path& folder);

/// Writes checkpoint-<step> below `output`: into a temporary folder, the manifest last, then one rename; an older one
/// of the same step goes only then. Everything that continues the run bit for bit is in it. Returns its path. Errors:
/// ErrorKind::disk.
std::filesystem::path save_checkpoint(const TrainingObjects& run, const std::filesystem::path& output);

/// The checkpoints below `output` that have a manifest, by step, oldest first.
std::vector<std::filesystem::path> find_checkpoints(const std::filesystem::path& output);

/// The day that the chat template wrote in the run of the first of `checkpoints` whose state is whole, where it writes
/// it.
std::optional<std::string> saved_template_date(const std::vector<std::filesystem::path>& checkpoints);

/// Restores state, weights and optimizer. ErrorKind::usage when the checkpoint belongs to another run (names the first
/// value that differs); ErrorKind::input when a file is not the one that its manifest names.
void load_checkpoint(TrainingObjects& run, const std::filesystem::path& checkpoint);

/// Restores the first of `checkpoints` that is not damaged and says which; a warning names each damaged one before it.
/// None for an empty list. When all are damaged: the error of the first.
std::optional<std::filesystem::path> load_first_whole(TrainingObjects& run,
                                                      const std::vector<std::filesystem::path>& checkpoints, Log& log);

/// Removes the oldest checkpoints beyond `limit`, never those named in `keep` (the one just written, the best). Damaged
/// ones neither count nor go.
struct Rotation {
  std::int64_t limit = 1;
  std::vector<std::filesystem::path> keep;  ///< folder names
};
void rotate_checkpoints(const std::filesystem::path& output, const Rotation& rotation);

/// Removes what interrupted saves and removals have left, but never `named`; a whole checkpoint gets its name again
/// where no other has it. What cannot be removed is a warning. The output directory has to be locked.
void clear_leftovers(const std::filesystem::path& output, const std::filesystem::path& named, Log& log);

/// Renames the checkpoints of an earlier run, so that nothing goes on from them nor rotates them. Returns how many.
std::int64_t set_aside_checkpoints(const std::filesystem::path& output);

}  // namespace qtrain
