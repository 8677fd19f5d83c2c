#include "train/run/training_loop.h"

#include "core/os/stop.h"
#include "core/timeline.h"

namespace qtrain {

// Samples of an evaluation that a stop cut short are taken again.
TrainingLoop::TrainingLoop(Run& run, RunLog& run_log, RunCheckpoints& checkpoints)
    : run_(run),
      run_log_(run_log),
      checkpoints_(checkpoints),
      events_(run.training(), run.plan()),
      samples_(run, run.state.step - (run.state.events_pending ? 1 : 0)),
      steps_(run) {}

bool TrainingLoop::run(std::int64_t stop_after) {
  const RunState& state = run_.state;
  set_stop_answer("Stopping after this step and saving a checkpoint. Press Ctrl-C again to quit now without saving.");
  run_log_.begin();
  if (run_.model.evaluator && run_.training().eval_on_start && state.step == 0)
    evaluate();  // only to know it, as in transformers
  const bool was_pending = state.events_pending;
  if (was_pending) handle_events();
  run_log_.begin_steps();
  run_.phases.begin("first step");
  const auto stops_here = [&] { return stop_after > 0 && state.step >= stop_after; };
  while (!is_over() && !stops_here() && !run_.stop_requested()) {
    run_log_.add_step(steps_.next());
    handle_events();
  }
  if (is_over() && !state.events_pending && run_.finish_unless_stopped()) {
    if (run_.ended_early())
      run_.log.info("the run ends early, after step {} of {}: {} (early_stopping_patience)", state.step,
                    run_.plan().max_steps, state.evaluations.reason());
    return true;
  }
  const bool did_steps = run_log_.pace().steps > 0, only_evaluated = was_pending && !state.events_pending;
  if (did_steps ? !checkpoints_.has_last_step() || state.events_pending : only_evaluated) save();
  return false;
}

bool TrainingLoop::is_over() const {
  return events_.is_last(run_.state.step) || run_.state.evaluations.ends_run();
}

// Does what is due after a step. A stop leaves an evaluation and what follows it to the resumed run; after an
// evaluation, whose row is logged, the checkpoint that is due is saved.
void TrainingLoop::handle_events() {
  RunState& state = run_.state;
  const CheckpointPolicy& policy = checkpoints_.policy();
  state.events_pending = true;
  if (run_.model.evaluator && events_.evaluates_after(state.step)) {
    const std::optional<double> metric = evaluate();
    if (!metric) return;
    state.evaluations.add(state.step, *metric);
    checkpoints_.policy().evaluated(state, *metric);
  }
  state.events_pending = false;
  if (policy.save_due(state)) save();
}

// Returns the loss, or none if a stop came first.
std::optional<double> TrainingLoop::evaluate() {
  const Stopwatch watch;
  const timeline::Span span("evaluate");
  const Evaluation e = run_.model.evaluator->run(run_.ctx, *run_.model.runner, run_.log);
  if (run_.stop_requested()) return {};
  const double seconds = watch.seconds();
  run_log_.add_sampling(samples_.take(run_.state.step));
  if (run_.stop_requested()) return {};  // the stop came while answering prompts
  run_log_.add_evaluation(e, seconds);
  return e.loss();
}

void TrainingLoop::save() {
  const timeline::Span span("save");
  const Stopwatch watch;
  run_log_.sync();
  checkpoints_.save();
  run_log_.add_saving(watch.seconds());
}

}  // namespace qtrain
