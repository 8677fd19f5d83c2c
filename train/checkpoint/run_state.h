#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/formats/json.h"
#include "optim/loss_scale.h"
#include "train/checkpoint/evaluation_course.h"
#include "train/setup/step_plan.h"

namespace qtrain {

/// Everything that a run must save besides weights and optimizer state. Random numbers and data order are functions of
/// (seed, step), so there is no generator state.
struct RunState {
  std::int64_t step = 0;      ///< updates done
  std::int64_t tokens = 0;    ///< input tokens seen
  double flos = 0;            ///< floating-point operations by transformers' estimate
  double loss_since_log = 0;  ///< sum of the finite step losses since the last logged row
  std::int64_t steps_since_log = 0;
  double router_loss_since_log = 0;           ///< sum of router losses since then, without their coefficient
  std::int64_t router_batches_since_log = 0;  ///< number of micro-batches in that sum
  double loss_total = 0;                      ///< sum of all finite step losses, for train_loss
  std::int64_t loss_steps = 0;
  bool events_pending = false;  ///< a stop preempted the evaluation or save that is due after this step
  std::int64_t nonfinite_in_row = 0;
  LossScale loss_scale;        ///< float16 runs only
  std::int64_t overflows = 0;  ///< updates skipped because gradients overflowed
  std::optional<double> best_metric;
  std::int64_t best_step = 0;
  std::string best_checkpoint;
  Json log_history = Json::array();
  EvaluationCourse evaluations;  ///< follows from log_history and the config

  /// Adds the loss of a step, unless it is not finite.
  void add_loss(double loss);
  /// Mean of the finite losses since the last logged row; none if there were none.
  std::optional<double> mean_loss() const;
  /// Adds the router losses of a step's micro-batches.
  void add_router_loss(double sum, std::int64_t batches);
  /// Their mean per micro-batch since the last logged row; none for models without router loss.
  std::optional<double> mean_router_loss() const;
  /// Mean of the finite losses of all steps.
  std::optional<double> mean_loss_of_all() const;
  /// Call after a row was logged.
  void begin_row() { loss_since_log = router_loss_since_log = 0, steps_since_log = router_batches_since_log = 0; }

  Json to_json() const;
  static RunState from_json(const Json& json, const std::string& place);
};

/// Contents of trainer_state.json in transformers' format.
Json trainer_state_json(const RunState& state, const TrainingSection& t, const StepPlan& plan);

}  // namespace qtrain
