#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/run_state.h"
#include "train/run/run_schedule.h"

namespace qtrain {

/// Decides when a run saves a checkpoint, which checkpoint is the best, and which ones to keep. Does no file I/O.
class CheckpointPolicy {
 public:
  /// Both arguments must outlive this object.
  CheckpointPolicy(const TrainingSection& training, const StepPlan& plan) : t_(training), events_(training, plan) {}

  /// Whether a checkpoint is due after the last optimizer step.
  bool save_due(const RunState& state) const;
  /// Records the metric of an evaluation after the last step in `state` if it is the best of the run so far.
  void evaluated(RunState& state, double metric);
  /// Whether a checkpoint of the last step would be the best one.
  static bool is_best(const RunState& state) { return state.best_metric && state.best_step == state.step; }
  /// What to delete once the checkpoint `newest` is written; none without save_total_limit.
  std::optional<Rotation> rotation(const RunState& state, const std::filesystem::path& newest) const;
  /// The checkpoint whose weights become the final model; none: those of the last step.
  std::optional<std::filesystem::path> final_checkpoint(const RunState& state) const;

 private:
  bool chooses_best() const;
  bool is_better(const RunState& state, double metric) const;

  const TrainingSection& t_;
  RunSchedule events_;
  std::int64_t best_found_after_ = -1;  ///< step at which this process found it; -1: not yet
};

}  // namespace qtrain
