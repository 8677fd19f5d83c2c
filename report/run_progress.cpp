#include "report/run_progress.h"

#include <limits>

namespace qtrain {

Progress progress_of(const RunState& state, std::int64_t max_steps, const Pace& pace) {
  const double seconds_per_step = pace.seconds / static_cast<double>(pace.steps);
  return {.step = state.step,
          .total = max_steps,
          .loss = state.mean_loss().value_or(std::numeric_limits<double>::quiet_NaN()),
          .tokens_per_second = static_cast<double>(pace.tokens) / pace.seconds,
          .eta_seconds = seconds_per_step * static_cast<double>(max_steps - state.step)};
}

}  // namespace qtrain
