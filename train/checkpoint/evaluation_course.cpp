#include "train/checkpoint/evaluation_course.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/plural.h"

namespace qtrain {
namespace {

constexpr const char* kCallback = "EarlyStoppingCallback";

// A value in a resolved_config.json; null if it is not there.
Json recorded_value(const Json& values, const char* key) {
  const Json::json_pointer at(fmt::format("/{}/value", key));
  return values.contains(at) ? values[at] : Json();
}

}  // namespace

bool is_better(Better better, const std::optional<double>& best, double metric) {
  if (!std::isfinite(metric)) return false;
  if (!best) return true;
  return better == Better::higher ? metric > *best : metric < *best;
}

EvaluationCourse::EvaluationCourse(const TrainingSection& t, const PlateauRules& rules, const Json& log_history)
    : patience_(t.early_stopping_patience),
      threshold_(t.early_stopping_threshold),
      better_(t.greater_is_better.value_or(false) ? Better::higher : Better::lower),
      rules_(rules) {
  for (const Json& row : log_history) {
    if (!row.is_object() || !row.contains("eval_loss")) continue;
    const Json step = row.value("step", Json()), metric = row["eval_loss"];
    if (!step.is_number_integer()) continue;
    add(step, metric.is_number() ? metric.get<double>() : std::nan(""));  // null stands for NaN and infinity
  }
}

void EvaluationCourse::add(std::int64_t step, double metric) {
  if (step <= step_) return;
  const bool is_first = step_ == 0;
  step_ = step;
  if (!std::isfinite(metric)) metric = std::nan("");  // as the log_history gives it to a resumed run
  plateau_.add(rules_, metric);
  bad_ = is_first || improves(metric) ? 0 : bad_ + 1;
  if (!is_better(better_, best_, metric)) return;
  best_ = metric;
  best_step_ = step;
}

// As in transformers, small improvements do not count, but they do make an evaluation the best.
bool EvaluationCourse::improves(double metric) const {
  return is_better(better_, best_, metric) && (!best_ || std::abs(metric - *best_) > threshold_);
}

std::string EvaluationCourse::reason() const {
  const std::string evaluations = counted(bad_, "evaluation") + (bad_ == 1 ? "" : " in a row");
  if (!best_) return fmt::format("no eval_loss of {} was finite", evaluations);
  if (threshold_ > 0)  // the best one may be among them
    return fmt::format("{} did not improve on the best one before by more than {} (best: eval_loss {:.4f}, step {})",
                       evaluations, threshold_, *best_, best_step_);
  return fmt::format("{} did not improve on eval_loss {:.4f} (step {})", evaluations, *best_, best_step_);
}

EvaluationCourse recorded_course(const Json& values, const Json& log_history) {
  TrainingSection rules;
  const Json patience = recorded_value(values, "early_stopping_patience"),
             threshold = recorded_value(values, "early_stopping_threshold");
  if (patience.is_number_integer()) rules.early_stopping_patience = patience;
  if (threshold.is_number()) rules.early_stopping_threshold = threshold;
  rules.greater_is_better = recorded_value(values, "greater_is_better") == true;
  return {rules, {}, log_history};
}

Json stateful_callbacks(const TrainingSection& t, const EvaluationCourse& course) {
  if (!t.early_stopping_patience) return Json::object();
  return {{kCallback,
           {{"args",
             {{"early_stopping_patience", *t.early_stopping_patience},
              {"early_stopping_threshold", t.early_stopping_threshold}}},
            {"attributes", {{"early_stopping_patience_counter", course.bad_evaluations()}}}}}};
}

bool shows_early_end(const Json& stateful_callbacks) {
  const auto member = [&](const char* part, const char* key) {
    const Json::json_pointer at(fmt::format("/{}/{}/{}", kCallback, part, key));
    return stateful_callbacks.contains(at) ? stateful_callbacks[at] : Json();
  };
  const Json patience = member("args", "early_stopping_patience"),
             counter = member("attributes", "early_stopping_patience_counter");
  return patience.is_number_integer() && counter.is_number_integer() && counter >= patience;
}

}  // namespace qtrain
