#include "app/init/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace qtrain::init {
namespace {

constexpr double kShare = 0.2;  // between evaluations and checkpoints, of all updates

/// "5 times a run".
std::string times_a_run(std::int64_t updates) {
  const std::int64_t all = std::max<std::int64_t>(updates, 1), interval = interval_steps(kShare, all),
                     times = (all + interval - 1) / interval;
  return times == 1 ? "once a run" : fmt::format("{} times a run", times);
}

/// Whether checkpoints at these intervals are all evaluated, as load_best_model_at_end requires (config/rules.yaml).
bool is_multiple(const Json& saves, const Json& evaluations) {
  if (!saves.is_number() || !evaluations.is_number()) return false;
  const double save = saves.get<double>(), evaluation = evaluations.get<double>();
  if (save <= 0 || evaluation <= 0 || (save < 1) != (evaluation < 1)) return false;
  const double times = save / evaluation;
  return times > 0.5 && std::abs(times - std::round(times)) < 1e-6;
}

/// The keys of one run, in the order in which they follow from each other.
class Intervals {
 public:
  Intervals(Choices& choices, const RunFacts& run)
      : choices_(choices),
        run_(run),
        evaluation_(evaluation()),
        saving_(saving()),
        eval_steps_(eval_steps()),
        save_steps_(save_steps()),
        keeps_best_(fits_best() && !gives("load_best_model_at_end", false)) {}

  void choose() {
    if (evaluation_ != "no" || is_given("eval_strategy"))
      choices_.add({.key = "eval_strategy", .value = evaluation_, .reason = why_evaluation() + then_best()});
    if (evaluation_ == "steps") choices_.add({.key = "eval_steps", .value = eval_steps_, .reason = ""});
    choices_.add({.key = "save_strategy", .value = saving_, .reason = why_saving()});
    if (saving_ == "steps") choices_.add({.key = "save_steps", .value = save_steps_, .reason = ""});
    if (saving_ != "no") choices_.add({.key = "save_total_limit", .value = 1, .reason = ""});
    if (keeps_best_ || is_given("load_best_model_at_end"))
      choices_.add({.key = "load_best_model_at_end", .value = true, .reason = ""});
  }

 private:
  bool is_given(const char* key) const { return choices_.is_given(key); }
  bool gives(const char* key, const Json& value) const { return is_given(key) && choices_.given(key) == value; }

  Json evaluation() const {
    if (is_given("eval_strategy")) return choices_.given("eval_strategy");
    if (!run_.evaluates) return "no";
    const bool by_epoch = !is_given("eval_steps") && gives("save_strategy", "epoch");
    return by_epoch ? "epoch" : "steps";
  }
  Json saving() const {
    if (is_given("save_strategy")) return choices_.given("save_strategy");
    return evaluation_ == "epoch" && !is_given("save_steps") ? "epoch" : "steps";
  }
  Json eval_steps() const {
    if (is_given("eval_steps")) return choices_.given("eval_steps");
    return saving_ == "steps" && is_given("save_steps") ? choices_.given("save_steps") : Json(kShare);
  }
  Json save_steps() const {
    if (is_given("save_steps")) return choices_.given("save_steps");
    return evaluation_ == "steps" && eval_steps_.is_number() ? eval_steps_ : Json(kShare);
  }
  bool fits_best() const {
    if (evaluation_ == "no") return false;
    if (evaluation_ != saving_) return saving_ == "best";
    return saving_ != "steps" || is_multiple(save_steps_, eval_steps_);
  }

  std::string why_evaluation() const {
    if (evaluation_ == "epoch") return "after each epoch, as checkpoints are saved";
    if (is_given("eval_steps")) return "at the given eval_steps";
    if (saving_ == "steps" && is_given("save_steps")) return "where checkpoints are saved";
    return times_a_run(run_.updates);
  }
  std::string why_saving() const {
    if (evaluation_ != "no")
      return is_given("eval_strategy") && keeps_best_ ? "where it is evaluated" + then_best() : "";
    const std::string often = is_given("save_steps") ? "at the given save_steps" : times_a_run(run_.updates);
    return often + (is_given("save_total_limit") ? "" : "; only the newest checkpoint stays");
  }
  std::string then_best() const { return keeps_best_ ? "; the best checkpoint is the result" : ""; }

  Choices& choices_;
  const RunFacts& run_;
  Json evaluation_, saving_, eval_steps_, save_steps_;
  bool keeps_best_;
};

}  // namespace

void choose_intervals(Choices& choices, const RunFacts& run) {
  Intervals(choices, run).choose();
}

}  // namespace qtrain::init
