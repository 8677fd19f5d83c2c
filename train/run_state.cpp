#include "train/run_state.h"

namespace qtrain {

Json RunState::to_json() const {
  return {{"step", step},
          {"tokens", tokens},
          {"loss_since_log", loss_since_log},
          {"steps_since_log", steps_since_log},
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
  try {
    RunState s;
    s.step = json.at("step");
    s.tokens = json.at("tokens");
    s.loss_since_log = json.at("loss_since_log");
    s.steps_since_log = json.at("steps_since_log");
    s.loss_total = json.at("loss_total");
    s.loss_steps = json.at("loss_steps");
    s.events_pending = json.at("events_pending");
    s.nonfinite_in_row = json.at("nonfinite_in_row");
    s.loss_scale = {.value = json.at("loss_scale"), .clean_steps = json.at("loss_scale_clean_steps")};
    s.overflows = json.at("overflows");
    if (!json.at("best_metric").is_null()) s.best_metric = json.at("best_metric").get<double>();
    s.best_step = json.at("best_step");
    s.best_checkpoint = json.at("best_checkpoint");
    return s;
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::input, {.cause = std::string("not a training state of qtrain: ") + e.what(), .place = place});
  }
}

// As transformers counts: whole epochs, the last one perhaps cut short.
std::int64_t begun_epochs(const StepPlan& plan) {
  return (plan.max_steps + plan.updates_per_epoch - 1) / plan.updates_per_epoch;
}

Json trainer_state_json(const RunState& s, const TrainingSection& t, const StepPlan& plan) {
  constexpr double kUnusedEvalSteps = 500;  // transformers' default, which only eval_strategy steps replaces
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
          {"stateful_callbacks", Json::object()},
          {"total_flos", 0.0},
          {"train_batch_size", t.per_device_train_batch_size},
          {"trial_name", none},
          {"trial_params", none}};
}

}  // namespace qtrain
