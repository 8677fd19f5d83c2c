#pragma once
#include <cstdint>

#include "train/setup/step_plan.h"

namespace qtrain {

/// What is due after how many optimizer steps, as the config says: rows of metrics, evaluations, checkpoints.
class RunSchedule {
 public:
  /// Both must outlive it.
  RunSchedule(const TrainingSection& training, const StepPlan& plan) : t_(training), plan_(plan) {}

  bool logs_after(std::int64_t step) const;
  bool evaluates_after(std::int64_t step) const;
  /// By save_strategy steps or epoch; `best` is a matter of evaluations (CheckpointPolicy).
  bool saves_after(std::int64_t step) const;
  bool is_last(std::int64_t step) const { return step >= plan_.max_steps; }

 private:
  struct Recurrence {
    EvalStrategy strategy;
    double steps;  ///< between two of them; below 1: a share of the run
  };
  bool due(const Recurrence& what, std::int64_t step) const;

  const TrainingSection& t_;
  const StepPlan& plan_;
};

}  // namespace qtrain
