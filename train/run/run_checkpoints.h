#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "train/checkpoint/checkpoint.h"
#include "train/run/checkpoint_policy.h"
#include "train/run/run_context.h"

namespace qtrain {

/// The checkpoints of a run: written, rotated and read again as a CheckpointPolicy says.
class RunCheckpoints {
 public:
  /// What the arguments refer to must outlive this.
  RunCheckpoints(const RunContext& run, const TrainingObjects& objects, std::filesystem::path output);

  /// Restores the first checkpoint that is not damaged, if there is one. Errors: those of load_first_whole.
  std::optional<std::filesystem::path> restore(const ResumeFrom& from);
  CheckpointPolicy& policy() { return policy_; }
  /// Saves one of the last optimizer step; the rank that leads rotates. Errors: ErrorKind::disk.
  void save();
  /// Whether the last optimizer step has one that was written, or gone on from, by this start of the program.
  bool has_last_step() const { return saved_step_ == objects_.state.step; }
  /// Removes what is beyond the limit.
  void rotate(const std::filesystem::path& newest) const;
  /// Loads the weights of the best one where the config asks for them; a warning where they are not there any more.
  void load_best();

 private:
  std::optional<Resumed> load_chosen(const ResumeFrom& from);
  std::filesystem::path relocated_best(const std::filesystem::path& resumed) const;

  RunContext run_;
  TrainingObjects objects_;
  std::filesystem::path output_;
  CheckpointPolicy policy_;
  std::vector<std::filesystem::path> damaged_;  // names of those that the run did not go on from
  std::int64_t saved_step_ = -1;
};

}  // namespace qtrain
