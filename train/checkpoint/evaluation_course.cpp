#include "train/checkpoint/evaluation_course.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/plural.h"

namespace qtrain {
namespace {

constexpr const char* kCallback = "EarlyStoppingCallback";

}  // namespace

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
  plateau_.add(rules_, metric);
  bad_ = is_first || improves(metric) ? 0 : bad_ + 1;
  if (!is_better(metric)) return;
  best_ = metric;
  best_step_ = step;
}

bool EvaluationCourse::is_better(double metric) const {
  if (!std::isfinite(metric)) return false;
  if (!best_) return true;
  return better_ == Better::higher ? metric > *best_ : metric < *best_;
}

// As in transformers, small improvements do not count, but they do make an evaluation the best.
bool EvaluationCourse::improves(double metric) const {
  return is_better(metric) && (!best_ || std::abs(metric - *best_) > threshold_);
}

std::string EvaluationCourse::reason() const {
  const std::string evaluations = counted(bad_, "evaluation") + (bad_ == 1 ? "" : " in a row");
  if (!best_) return fmt::format("no eval_loss of {} was finite", evaluations);
  return fmt::format("{} did not improve on eval_loss {:.4f} (step {}){}", evaluations, *best_, best_step_,
                     threshold_ > 0 ? fmt::format(" by more than {}", threshold_) : "");
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
