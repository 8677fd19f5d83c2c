#include "train/run/run_schedule.h"

namespace qtrain {

bool RunSchedule::due(const Recurrence& what, std::int64_t step) const {
  switch (what.strategy) {
    case EvalStrategy::no: return false;
    case EvalStrategy::epoch: return step % plan_.updates_per_epoch == 0 || is_last(step);
    case EvalStrategy::steps: return step % interval_steps(what.steps, plan_.max_steps) == 0;
  }
  return false;
}

bool RunSchedule::logs_after(std::int64_t step) const {
  return due({t_.logging_strategy, t_.logging_steps}, step) || (t_.logging_first_step && step == 1);
}

bool RunSchedule::evaluates_after(std::int64_t step) const {
  const bool asked = due({t_.eval_strategy, t_.eval_steps.value_or(t_.logging_steps)}, step) ||
                     (t_.eval_strategy == EvalStrategy::steps && is_last(step));
  const double done = t_.eval_strategy == EvalStrategy::epoch ? plan_.epochs_after(step) : static_cast<double>(step);
  return asked && done >= t_.eval_delay;
}

bool RunSchedule::saves_after(std::int64_t step) const {
  switch (t_.save_strategy) {
    case SaveStrategy::no:
    case SaveStrategy::best: return false;
    case SaveStrategy::epoch: return due({EvalStrategy::epoch, 1}, step);
    case SaveStrategy::steps: return due({EvalStrategy::steps, t_.save_steps}, step) || is_last(step);
  }
  return false;
}

}  // namespace qtrain
