#include "optim/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

namespace qtrain {
namespace {

constexpr std::array<std::string_view, 3> kRampNames{"linear", "cosine", "1-sqrt"};
constexpr std::array<std::string_view, 2> kBetterNames{"min", "max"}, kThresholdModeNames{"rel", "abs"};

std::size_t idx(ScheduleKind kind) {
  return static_cast<std::size_t>(kind);
}

[[noreturn]] void refuse_schedule(const std::string& cause, const std::string& remedy = {}) {
  fail(ErrorKind::usage, {.cause = cause, .place = "lr_scheduler_kwargs", .remedy = remedy});
}

/// Typed access to lr_scheduler_kwargs; null counts as missing, as in Python.
struct Kwargs {
  const Json& json;

  const Json* get(const char* name) const {
    const auto it = json.find(name);
    return it == json.end() || it->is_null() ? nullptr : &*it;
  }
  std::optional<double> number(const char* name) const {
    const Json* v = get(name);
    if (!v) return {};
    if (!v->is_number()) refuse_schedule(fmt::format("{} must be a number, not {}", name, v->dump()));
    return v->get<double>();
  }
  std::optional<std::int64_t> steps(const char* name) const {
    const auto v = number(name);
    if (!v) return {};
    if (*v < 0 || *v != std::floor(*v) || *v > 9e15) refuse_schedule(fmt::format("{} must be a number of steps", name));
    return static_cast<std::int64_t>(*v);
  }
  /// The value of an enumeration with these names, in order.
  template <class E, std::size_t N>
  E word(const char* name, const std::array<std::string_view, N>& names, E otherwise) const {
    const Json* v = get(name);
    if (!v) return otherwise;
    const auto at = v->is_string() ? std::ranges::find(names, v->get<std::string>()) : names.end();
    if (at == names.end())
      refuse_schedule(fmt::format("{} is {}", name, v->dump()),
                      fmt::format("choose one of {}", fmt::join(names, ", ")));
    return static_cast<E>(at - names.begin());
  }
};

double minimum_factor(const Kwargs& kwargs, const ScheduleRequest& request) {
  const auto min_lr = kwargs.number("min_lr"), rate = kwargs.number("min_lr_rate");
  if (min_lr && rate) refuse_schedule("min_lr and min_lr_rate are both given", "give one of them");
  if (!min_lr && !rate)
    refuse_schedule(fmt::format("schedule {} needs min_lr or min_lr_rate", schedule_names()[idx(request.kind)]),
                    "for example {\"min_lr_rate\": 0.1}");
  if (rate) return *rate;
  if (request.learning_rate <= 0) refuse_schedule("min_lr needs a learning_rate above 0");
  return *min_lr / request.learning_rate;
}

void set_cycles(Schedule& s, const Kwargs& kwargs, const ScheduleRequest&) {
  s.num_cycles = kwargs.number("num_cycles").value_or(s.kind == ScheduleKind::cosine_with_restarts ? 1.0 : 0.5);
}

void set_min_lr(Schedule& s, const Kwargs& kwargs, const ScheduleRequest& request) {
  set_cycles(s, kwargs, request);
  s.min_factor = minimum_factor(kwargs, request);
  s.warmup_lr_rate = kwargs.number("warmup_lr_rate");
}

void set_timescale(Schedule& s, const Kwargs& kwargs, const ScheduleRequest&) {
  s.timescale = kwargs.steps("timescale").value_or(s.warmup_steps > 0 ? s.warmup_steps : 10'000);
  if (s.timescale < 1) refuse_schedule("timescale must be at least 1");
}

void set_polynomial(Schedule& s, const Kwargs& kwargs, const ScheduleRequest&) {
  s.lr_end = kwargs.number("lr_end").value_or(1e-7);
  s.power = kwargs.number("power").value_or(1.0);
  if (!(s.learning_rate > s.lr_end))
    refuse_schedule(fmt::format("lr_end ({}) must be smaller than learning_rate ({})", s.lr_end, s.learning_rate));
}

void set_stable_decay(Schedule& s, const Kwargs& kwargs, const ScheduleRequest& request) {
  set_cycles(s, kwargs, request);
  const auto decay = kwargs.steps("num_decay_steps");
  if (!decay)
    refuse_schedule("schedule warmup_stable_decay needs num_decay_steps", "for example {\"num_decay_steps\": 100}");
  s.decay_steps = *decay;
  s.stable_steps = kwargs.steps("num_stable_steps").value_or(s.total_steps - s.warmup_steps - s.decay_steps);
  s.warmup_ramp = kwargs.word("warmup_type", kRampNames, Ramp::linear);
  s.decay_ramp = kwargs.word("decay_type", kRampNames, Ramp::cosine);
  s.min_factor = kwargs.number("min_lr_ratio").value_or(0);
}

void set_plateau(Schedule& s, const Kwargs& kwargs, const ScheduleRequest&) {
  PlateauRules& r = s.plateau;
  r.mode = kwargs.word("mode", kBetterNames, r.mode);
  r.factor = kwargs.number("factor").value_or(r.factor);
  r.patience = kwargs.steps("patience").value_or(r.patience);
  r.threshold = kwargs.number("threshold").value_or(r.threshold);
  r.threshold_mode = kwargs.word("threshold_mode", kThresholdModeNames, r.threshold_mode);
  r.cooldown = kwargs.steps("cooldown").value_or(r.cooldown);
  r.min_lr = kwargs.number("min_lr").value_or(r.min_lr);
  r.eps = kwargs.number("eps").value_or(r.eps);
  if (!(r.factor >= 0 && r.factor < 1))
    refuse_schedule(fmt::format("factor is {}", r.factor),
                    r.factor < 0 ? "give a number from 0 and below 1" : "give a number below 1, such as 0.5");
  if (r.threshold < 0 || r.min_lr < 0 || r.eps < 0) refuse_schedule("threshold, min_lr and eps must not be negative");
}

constexpr double kPi = std::numbers::pi;

double ratio(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(std::max<std::int64_t>(1, b));
}

/// Position between the end of warm-up (0) and the end of the run (1).
double progress(const Schedule& s, std::int64_t step) {
  return ratio(step - s.warmup_steps, s.total_steps - s.warmup_steps);
}

double raised(double factor, double minimum) {
  return std::max(0.0, factor * (1.0 - minimum) + minimum);
}

double half_cosine(const Schedule& s, double p) {
  return 0.5 * (1.0 + std::cos(kPi * s.num_cycles * 2.0 * p));
}

double restarts(const Schedule& s, std::int64_t step) {
  const double p = progress(s, step);
  if (p >= 1.0) return 0.0;
  return std::max(0.0, 0.5 * (1.0 + std::cos(kPi * std::fmod(s.num_cycles * p, 1.0))));
}

double polynomial(const Schedule& s, std::int64_t step) {
  const std::int64_t decay_steps = s.total_steps - s.warmup_steps;
  if (step > s.total_steps || decay_steps <= 0) return s.lr_end / s.learning_rate;
  const double remaining = 1 - static_cast<double>(step - s.warmup_steps) / static_cast<double>(decay_steps);
  return ((s.learning_rate - s.lr_end) * std::pow(remaining, s.power) + s.lr_end) / s.learning_rate;
}

double min_lr_warmup(const Schedule& s, std::int64_t step) {
  const double at = static_cast<double>(step), warmup = static_cast<double>(s.warmup_steps);
  if (!s.warmup_lr_rate) return (at + 1.0) / std::max(1.0, warmup);
  return *s.warmup_lr_rate + (1.0 - *s.warmup_lr_rate) * at / std::max(1.0, warmup - 1);
}

double min_lr_cosine(const Schedule& s, std::int64_t step) {
  const double warmup = static_cast<double>(s.warmup_steps), total = static_cast<double>(s.total_steps);
  return raised(half_cosine(s, (static_cast<double>(step) - warmup + 1.0) / std::max(1.0, total - warmup)),
                s.min_factor);
}

double rising(Ramp ramp, double p) {
  switch (ramp) {
    case Ramp::linear: return p;
    case Ramp::cosine: return 0.5 * (1.0 - std::cos(kPi * p));
    case Ramp::one_minus_sqrt: return 1.0 - std::sqrt(1.0 - p);
  }
  return p;
}

double falling(const Schedule& s, double p) {
  switch (s.decay_ramp) {
    case Ramp::linear: return 1.0 - p;
    case Ramp::cosine: return half_cosine(s, p);
    case Ramp::one_minus_sqrt: return 1.0 - std::sqrt(p);
  }
  return 1.0 - p;
}

double stable_decay(const Schedule& s, std::int64_t step) {
  if (step < s.warmup_steps) return raised(rising(s.warmup_ramp, ratio(step, s.warmup_steps)), s.min_factor);
  const std::int64_t decay_begin = s.warmup_steps + s.stable_steps;
  if (step < decay_begin) return 1.0;
  if (step < decay_begin + s.decay_steps)
    return raised(falling(s, ratio(step - decay_begin, s.decay_steps)), s.min_factor);
  return s.min_factor;
}

double inverse_sqrt(const Schedule& s, std::int64_t step) {
  const std::int64_t shift = s.timescale - s.warmup_steps;
  return 1.0 / std::sqrt(static_cast<double>(step + shift) / static_cast<double>(s.timescale));
}

double linear(const Schedule& s, std::int64_t step) {
  return std::max(0.0, ratio(s.total_steps - step, s.total_steps - s.warmup_steps));
}

double cosine(const Schedule& s, std::int64_t step) {
  return raised(half_cosine(s, progress(s, step)), s.min_factor);
}

double linear_warmup(const Schedule& s, std::int64_t step) {
  return ratio(step, s.warmup_steps);
}

double one(const Schedule&, std::int64_t) {
  return 1.0;
}

using Names = std::vector<std::string_view>;

/// One row per ScheduleKind.
struct ScheduleRow {
  std::string_view name;
  double (*factor)(const Schedule&, std::int64_t step);  ///< after the warm-up; null: not available
  /// accepted arguments; null: any, all of which transformers ignores
  std::optional<Names> arguments = Names{};
  void (*resolve)(Schedule&, const Kwargs&, const ScheduleRequest&) = nullptr;
  double (*warmup)(const Schedule&, std::int64_t step) = linear_warmup;
};

const std::vector<ScheduleRow>& rows() {
  static const std::vector<ScheduleRow> kRows{
      {"linear", linear},
      {"cosine", cosine, Names{"num_cycles"}, set_cycles},
      {"cosine_with_restarts", restarts, Names{"num_cycles"}, set_cycles},
      {"polynomial", polynomial, Names{"lr_end", "power"}, set_polynomial},
      {"constant", one, std::nullopt, nullptr, one},
      {"constant_with_warmup", one, std::nullopt},
      {"inverse_sqrt", inverse_sqrt, Names{"timescale"}, set_timescale},
      {"cosine_with_min_lr", cosine, Names{"num_cycles", "min_lr", "min_lr_rate"}, set_min_lr},
      {"cosine_warmup_with_min_lr", min_lr_cosine, Names{"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"},
       set_min_lr, min_lr_warmup},
      {"warmup_stable_decay", stable_decay,
       Names{"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"},
       set_stable_decay, stable_decay},
      {"reduce_lr_on_plateau", one,
       Names{"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"}, set_plateau,
       one},
      {"greedy", nullptr}};
  return kRows;
}

const ScheduleRow& row_of(ScheduleKind kind) {
  return rows()[idx(kind)];
}

void check_names(const ScheduleRow& row, const Json& kwargs) {
  if (!row.arguments) return;
  for (const auto& [key, value] : kwargs.items())
    if (std::ranges::find(*row.arguments, key) == row.arguments->end())
      refuse_schedule(fmt::format("schedule {} has no argument \"{}\"", row.name, key),
                      row.arguments->empty() ? "it takes no arguments"
                                             : fmt::format("it takes {}", fmt::join(*row.arguments, ", ")));
}

}  // namespace

std::span<const std::string_view> schedule_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names;
    for (const ScheduleRow& row : rows()) names.push_back(row.name);
    return names;
  }();
  return kNames;
}

std::span<const std::string_view> available_schedules() {
  const auto available = [](const ScheduleRow& row) { return row.factor != nullptr; };
  return schedule_names().first(static_cast<std::size_t>(std::ranges::count_if(rows(), available)));
}

Schedule make_schedule(const ScheduleRequest& request) {
  Schedule s{.kind = request.kind, .warmup_steps = request.warmup_steps, .total_steps = request.total_steps};
  s.learning_rate = request.learning_rate;
  const ScheduleRow& row = row_of(s.kind);
  if (!row.factor)
    fail(ErrorKind::usage, {.cause = fmt::format("schedule {} is not available", row.name),
                            .place = "lr_scheduler_type",
                            .remedy = "choose cosine, linear or reduce_lr_on_plateau"});
  if (!request.kwargs.is_object()) refuse_schedule("must be an object");
  check_names(row, request.kwargs);
  if (row.resolve) row.resolve(s, Kwargs{request.kwargs}, request);
  return s;
}

double learning_rate(const Schedule& s, const ScheduledStep& at) {
  if (s.kind == ScheduleKind::reduce_lr_on_plateau) return reduced_rate(s.plateau, at.peak, at.reductions);
  return at.peak * lr_factor(s, at.step);
}

double lr_factor(const Schedule& s, std::int64_t step) {
  const ScheduleRow& row = row_of(s.kind);
  return step < s.warmup_steps ? row.warmup(s, step) : row.factor(s, step);
}

}  // namespace qtrain
