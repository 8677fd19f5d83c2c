#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/formats/json.h"
#include "optim/plateau.h"

namespace qtrain {

/// Whether a metric is finite and better than the best one so far, if there is one.
bool is_better(Better better, const std::optional<double>& best, double metric);

/// What follows from the evaluations of a run, besides which checkpoint is the best: whether the run ends early, and
/// how often the schedule reduce_lr_on_plateau has reduced the learning rate. It is a function of the logged
/// evaluations, so a resumed run reads it from its log_history.
class EvaluationCourse {
 public:
  EvaluationCourse() = default;
  /// The course of the evaluations in a log_history.
  EvaluationCourse(const TrainingSection& t, const PlateauRules& rules, const Json& log_history);

  /// Counts the metric of an evaluation after this step, unless one after the step was counted before. An evaluation
  /// before the first step does not count, as in transformers.
  void add(std::int64_t step, double metric);

  /// Whether early_stopping_patience ends the run.
  bool ends_run() const { return patience_ && bad_ >= *patience_; }
  /// Evaluations in a row that were no improvement: early_stopping_patience_counter of transformers.
  std::int64_t bad_evaluations() const { return bad_; }
  /// Why the run ends, as a sentence without its end.
  std::string reason() const;
  const Plateau& plateau() const { return plateau_; }

 private:
  bool improves(double metric) const;

  std::optional<std::int64_t> patience_;
  double threshold_ = 0;
  Better better_ = Better::lower;
  PlateauRules rules_;
  std::int64_t step_ = 0;       ///< of the last evaluation that was counted; 0: none
  std::optional<double> best_;  ///< finite
  std::int64_t best_step_ = 0;
  std::int64_t bad_ = 0;
  Plateau plateau_;
};

/// The course of the evaluations in a log_history by the rules of early stopping in a resolved_config.json, given its
/// "values". Its plateau is not that of the run.
EvaluationCourse recorded_course(const Json& values, const Json& log_history);

/// The part of trainer_state.json in which transformers keeps the state of its EarlyStoppingCallback.
Json stateful_callbacks(const TrainingSection& t, const EvaluationCourse& course);
/// Whether such a part shows that the run was ended early.
bool shows_early_end(const Json& stateful_callbacks);

}  // namespace qtrain
