#pragma once
#include <cstdint>

#include "train/setup/step_plan.h"

namespace qtrain {

/// What is due after which optimizer steps, according to the config: metric rows, evaluations, checkpoints.
class RunSchedule {
 public:
  /// Both arguments must outlive this object.
  RunSchedule(const TrainingSection& training, const StepPlan& plan) : t_(training), plan_(plan) {}

  bool logs_after(std::int64_t step) const;
  bool evaluates_after(std::int64_t step) const;
  /// By save_strategy steps or epoch; `best` depends on evaluations (see CheckpointPolicy).
  bool saves_after(std::int64_t step) const;
  bool is_last(std::int64_t step) const { return step >= plan_.max_steps; }

 private:
  struct Recurrence {
    EvalStrategy strategy;
    double steps;  ///< interval; below 1: a fraction of the run
  };
  bool due(const Recurrence& what, std::int64_t step) const;

  const TrainingSection& t_;
  const StepPlan& plan_;
};

}  // namespace qtrain
