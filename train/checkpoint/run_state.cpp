#include "train/checkpoint/run_state.h"

#include <cmath>
#include <limits>

#include "core/formats/json_view.h"

namespace qtrain {

void RunState::add_loss(double loss) {
  if (!std::isfinite(loss)) return;
  loss_since_log += loss;
  loss_total += loss;
  ++steps_since_log;
  ++loss_steps;
}

std::optional<double> RunState::mean_loss() const {
  if (steps_since_log == 0) return {};
  return loss_since_log / static_cast<double>(steps_since_log);
}

void RunState::add_router_loss(double sum, std::int64_t batches) {
  if (!std::isfinite(sum)) return;
  router_loss_since_log += sum;
  router_batches_since_log += batches;
}

std::optional<double> RunState::mean_router_loss() const {
  if (router_batches_since_log == 0) return {};
  return router_loss_since_log / static_cast<double>(router_batches_since_log);
}

std::optional<double> RunState::mean_loss_of_all() const {
  if (loss_steps == 0) return {};
  return loss_total / static_cast<double>(loss_steps);
}

Json RunState::to_json() const {
  return {{"step", step},
          {"tokens", tokens},
          {"total_flos", flos},
          {"loss_since_log", loss_since_log},
          {"steps_since_log", steps_since_log},
          {"router_loss_since_log", router_loss_since_log},
          {"router_batches_since_log", router_batches_since_log},
          {"loss_total", loss_total},
          {"loss_steps", loss_steps},
          {"events_pending", events_pending},
          {"nonfinite_in_row", nonfinite_in_row},
          {"loss_scale", loss_scale.value},
          {"loss_scale_clean_steps", loss_scale.clean_steps},
          {"overflows", overflows},
          {"best_metric", best_metric ? Json(*best_metric) : Json()},
          {"best_step", best_step},
          {"best_checkpoint", best_checkpoint}};
}

RunState RunState::from_json(const Json& json, const std::string& place) {
  return reading(place, [&] {
    const JsonView v(json);
    const auto count = [&](const char* key) {
      return v.at(key).integer({0, std::numeric_limits<std::int64_t>::max()});
    };
    RunState s;
    s.step = count("step");
    s.tokens = count("tokens");
    s.flos = v.at("total_flos").number();
    s.loss_since_log = v.at("loss_since_log").number();
    s.steps_since_log = count("steps_since_log");
    if (v.find("router_loss_since_log")) {  // missing in old checkpoints
      s.router_loss_since_log = v.at("router_loss_since_log").number();
      s.router_batches_since_log = count("router_batches_since_log");
    }
    s.loss_total = v.at("loss_total").number();
    s.loss_steps = count("loss_steps");
    s.events_pending = v.at("events_pending").flag();
    s.nonfinite_in_row = count("nonfinite_in_row");
    s.loss_scale = {.value = v.at("loss_scale").number(), .clean_steps = count("loss_scale_clean_steps")};
    s.overflows = count("overflows");
    if (const auto best = v.find("best_metric")) s.best_metric = best->number();
    s.best_step = count("best_step");
    s.best_checkpoint = v.at("best_checkpoint").text();
    return s;
  });
}

// Like transformers, counts a final partial epoch as a whole one.
std::int64_t begun_epochs(const StepPlan& plan) {
  return (plan.max_steps + plan.updates_per_epoch - 1) / plan.updates_per_epoch;
}

Json trainer_state_json(const RunState& s, const TrainingSection& t, const StepPlan& plan) {
  constexpr double kUnusedEvalSteps = 500;  // transformers' default, used unless eval_strategy is steps
  const bool by_steps = t.eval_strategy == EvalStrategy::steps;
  const Json none;
  const auto interval = [&](double steps) { return interval_steps(steps, plan.max_steps); };
  // Keys in the order of transformers' sorted dump.
  return {{"best_global_step", s.best_checkpoint.empty() ? none : Json(s.best_step)},
          {"best_metric", s.best_metric ? Json(*s.best_metric) : none},
          {"best_model_checkpoint", s.best_checkpoint.empty() ? none : Json(s.best_checkpoint)},
          {"epoch", plan.epochs_after(s.step)},
          {"eval_steps", interval(t.eval_steps.value_or(by_steps ? t.logging_steps : kUnusedEvalSteps))},
          {"global_step", s.step},
          {"is_hyper_param_search", false},
          {"is_local_process_zero", true},
          {"is_world_process_zero", true},
          {"log_history", s.log_history},
          {"logging_steps", interval(t.logging_steps)},
          {"max_steps", plan.max_steps},
          {"num_input_tokens_seen", s.tokens},
          {"num_train_epochs", begun_epochs(plan)},
          {"save_steps", interval(t.save_steps)},
          {"stateful_callbacks", stateful_callbacks(t, s.evaluations)},
          {"total_flos", s.flos},
          {"train_batch_size", t.per_device_train_batch_size},
          {"trial_name", none},
          {"trial_params", none}};
}

}  // namespace qtrain
