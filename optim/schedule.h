#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/formats/json.h"
#include "optim/plateau.h"

namespace qtrain {

enum class ScheduleKind : std::uint8_t {
  linear,
  cosine,
  cosine_with_restarts,
  polynomial,
  constant,
  constant_with_warmup,
  inverse_sqrt,
  cosine_with_min_lr,
  cosine_warmup_with_min_lr,
  warmup_stable_decay,
  reduce_lr_on_plateau,
  greedy,  // not available
};

/// The names of `lr_scheduler_type`, in the order of ScheduleKind.
std::span<const std::string_view> schedule_names();
/// Names of the schedules that are available.
std::span<const std::string_view> available_schedules();

/// The shape of a ramp of warmup_stable_decay.
enum class Ramp : std::uint8_t { linear, cosine, one_minus_sqrt };

/// A learning-rate schedule with every argument resolved; made by make_schedule.
struct Schedule {
  ScheduleKind kind = ScheduleKind::linear;
  std::int64_t warmup_steps = 0, total_steps = 1;
  double num_cycles = 0.5;                          ///< cosine family and warmup_stable_decay
  double power = 1, lr_end = 0, learning_rate = 0;  ///< polynomial: from learning_rate down to lr_end
  double min_factor = 0;                 ///< cosine_with_min_lr, cosine_warmup_with_min_lr, warmup_stable_decay
  std::optional<double> warmup_lr_rate;  ///< cosine_warmup_with_min_lr
  std::int64_t timescale = 10'000;       ///< inverse_sqrt
  std::int64_t stable_steps = 0, decay_steps = 0;
  Ramp warmup_ramp = Ramp::linear, decay_ramp = Ramp::cosine;
  PlateauRules plateau;  ///< reduce_lr_on_plateau
};

struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::linear;
  double learning_rate = 0;  ///< the peak; polynomial and min_lr are relative to it
  std::int64_t warmup_steps = 0, total_steps = 1;
  Json kwargs = Json::object();  ///< `lr_scheduler_kwargs`
};

/// Checks and resolves a request. Throws ErrorKind::usage for an unknown, missing or out-of-range argument, and for
/// `greedy`, which is not available.
Schedule make_schedule(const ScheduleRequest& request);

/// The factor on the peak learning rate for the update number `step` (0 is the first); 1 for reduce_lr_on_plateau.
/// Source: transformers optimization.py; equal to it in f64.
double lr_factor(const Schedule& schedule, std::int64_t step);

/// What a learning rate depends on: the peak, the number of the update and, for reduce_lr_on_plateau, how often the
/// evaluations before it have reduced the rate.
struct ScheduledStep {
  double peak = 0;
  std::int64_t step = 0, reductions = 0;
};
double learning_rate(const Schedule& schedule, const ScheduledStep& at);

}  // namespace qtrain
