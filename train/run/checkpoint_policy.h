#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/run_state.h"
#include "train/run/run_schedule.h"

namespace qtrain {

/// When a run saves a checkpoint, which one is the best, and which ones stay. It reads and writes no file.
class CheckpointPolicy {
 public:
  /// Both must outlive it.
  CheckpointPolicy(const TrainingSection& training, const StepPlan& plan) : t_(training), events_(training, plan) {}

  /// Whether a checkpoint is due after the last optimizer step.
  bool save_due(const RunState& state) const;
  /// Takes the metric of an evaluation after the last step into `state` where it is the best of the run so far.
  void evaluated(RunState& state, double metric);
  /// Whether a checkpoint of the last step would be the best one.
  static bool is_best(const RunState& state) { return state.best_metric && state.best_step == state.step; }
  /// What goes once the checkpoint `newest` is there: nothing without save_total_limit.
  std::optional<Rotation> rotation(const RunState& state, const std::filesystem::path& newest) const;
  /// The checkpoint whose weights are to be the final ones; none: those of the last step are.
  std::optional<std::filesystem::path> final_checkpoint(const RunState& state) const;

 private:
  bool chooses_best() const;
  bool is_better(const RunState& state, double metric) const;

  const TrainingSection& t_;
  RunSchedule events_;
  std::int64_t best_found_after_ = -1;  ///< the step, in this start of the program
};

}  // namespace qtrain
