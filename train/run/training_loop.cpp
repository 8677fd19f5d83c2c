#include "train/run/training_loop.h"

#include "core/os/stop.h"
#include "core/timeline.h"

namespace qtrain {

TrainingLoop::TrainingLoop(const RunContext& run, const Parts& parts)
    : run_(run), parts_(parts), events_(run.training(), parts.plan) {}

bool TrainingLoop::run() {
  const RunState& state = parts_.state;
  set_stop_answer("Stopping after this step and saving a checkpoint. Press Ctrl-C again to quit now without saving.");
  parts_.run_log.begin();
  if (run_.training().eval_on_start && state.step == 0) evaluate();
  if (state.events_pending) handle_events();
  parts_.run_log.begin_steps();
  run_.phases.begin("first step");
  const auto stops_here = [&] { return parts_.stop_after > 0 && state.step >= parts_.stop_after; };
  while (!events_.is_last(state.step) && !stops_here() && !run_.stop_requested()) {
    parts_.run_log.add_step(parts_.steps.next());
    handle_events();
  }
  if (events_.is_last(state.step) && !state.events_pending && run_.finish_unless_stopped()) return true;
  const bool did_steps = parts_.run_log.pace().steps > 0;
  if (did_steps && (!parts_.checkpoints.has_last_step() || state.events_pending)) save();
  return false;
}

// Does what is due after a step. A stop leaves the rest to the resumed run.
void TrainingLoop::handle_events() {
  RunState& state = parts_.state;
  const CheckpointPolicy& policy = parts_.checkpoints.policy();
  state.events_pending = true;
  if (events_.evaluates_after(state.step) && !evaluate()) return;
  if (policy.save_due(state) && run_.stop_requested()) return;
  state.events_pending = false;
  if (policy.save_due(state)) save();
}

// Returns false if a stop came first.
bool TrainingLoop::evaluate() {
  if (!parts_.model.evaluator) return true;
  const Stopwatch watch;
  const timeline::Span span("evaluate");
  const Evaluation e = parts_.model.evaluator->run(run_.ctx, *parts_.model.runner, run_.log);
  if (run_.stop_requested()) return false;
  const double seconds = watch.seconds();
  parts_.run_log.add_sampling(parts_.samples.take(parts_.state.step));
  if (run_.stop_requested()) return false;  // the stop came while answering prompts
  parts_.run_log.add_evaluation(e, seconds);
  parts_.checkpoints.policy().evaluated(parts_.state, e.loss());
  return true;
}

void TrainingLoop::save() {
  const timeline::Span span("save");
  const Stopwatch watch;
  parts_.run_log.sync();
  parts_.checkpoints.save();
  parts_.run_log.add_saving(watch.seconds());
}

}  // namespace qtrain
