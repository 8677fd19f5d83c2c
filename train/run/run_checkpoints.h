#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "train/run/checkpoint_policy.h"
#include "train/run/run.h"

namespace qtrain {

/// Writes, rotates and reloads the checkpoints of a run, as a CheckpointPolicy decides.
class RunCheckpoints {
 public:
  /// `run` must outlive this object.
  explicit RunCheckpoints(Run& run);

  /// Restores the first undamaged checkpoint that the run may resume from, if there is one. Throws as load_first_whole
  /// does.
  std::optional<std::filesystem::path> restore();
  CheckpointPolicy& policy() { return policy_; }
  /// Saves a checkpoint of the last optimizer step; the leading rank rotates. Throws ErrorKind::disk.
  void save();
  /// Whether this process has saved or resumed from a checkpoint of the last optimizer step.
  bool has_last_step() const { return saved_step_ == run_.state.step; }
  /// Deletes checkpoints beyond save_total_limit.
  void rotate(const std::filesystem::path& newest) const;
  /// Loads the weights of the best checkpoint if the config asks for it; warns if they no longer exist.
  void load_best();

 private:
  std::optional<Resumed> load_chosen();
  std::filesystem::path relocated_best(const std::filesystem::path& resumed) const;

  Run& run_;
  TrainingObjects objects_;
  std::filesystem::path output_;
  CheckpointPolicy policy_;
  std::vector<std::filesystem::path> damaged_;  // names of checkpoints that the resume skipped as damaged
  std::int64_t saved_step_ = -1;
};

}  // namespace qtrain
