#include "config/dialects/expert.h"

#include "config/dialects/shared.h"

/// Expert manifests and ModelForge: what follows from evaluation rows.
namespace qtrain {
namespace {

/// Manifests say how to evaluate also where there are no evaluation rows.
void leave_out_evaluation(ResolvedConfig& c) {
  auto& t = c.value.training;
  if (t.eval_strategy == EvalStrategy::no && !t.load_best_model_at_end) return;
  c.judge.note(
      c.origin.at(c.given("eval_strategy") ? "eval_strategy" : "load_best_model_at_end"),
      "there are no evaluation rows (validation_path), so nothing is evaluated and the last weights are the result");
  t.eval_strategy = EvalStrategy::no;
  t.load_best_model_at_end = false;
}

}  // namespace

/// The expert trainer evaluates and keeps the best epoch as soon as it has evaluation rows.
void complete_expert(ResolvedConfig& c) {
  auto& t = c.value.training;
  if (!c.given("per_device_eval_batch_size")) t.per_device_eval_batch_size = t.per_device_train_batch_size;
  if (!evaluates(c)) return leave_out_evaluation(c);
  if (!c.given("eval_strategy")) t.eval_strategy = EvalStrategy::epoch;
  const bool same = name_of_enum(t.eval_strategy) == name_of_enum(t.save_strategy);
  if (!c.given("load_best_model_at_end") && same && t.eval_strategy == EvalStrategy::epoch)
    t.load_best_model_at_end = true;
}

/// ModelForge evaluates every eval_steps as soon as it has evaluation rows.
void complete_modelforge(ResolvedConfig& c) {
  auto& t = c.value.training;
  if (!c.value.data.eval_dataset_name.empty() && !c.given("eval_split")) c.value.data.eval_split = 0;
  if (evaluates(c) && !c.given("eval_strategy")) t.eval_strategy = EvalStrategy::steps;
}

}  // namespace qtrain
