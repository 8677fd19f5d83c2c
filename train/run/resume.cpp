#include "train/run/resume.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// A resumed run takes its weights from the checkpoint.
void describe_random_weights(const ModelSetup& setup, const RunContext& run) {
  if (const auto advice = advice_on_weights(setup)) run.log.warn("{}", *advice);
  if (!setup.random_init || setup.model->options().base == Update::frozen) return;
  run.log.info("the model starts from random weights, seed {}", run.training().seed);
}

void clear_way(const UnstartedRun& start, const ResumeFrom& from, const fs::path& resumed) {
  if (!from.named)
    start.checkpoints.rotate(resumed);  // left behind by a kill between a save and its rotation
  else if (start.output.holds(resumed))
    start.output.set_aside_after(start.objects.state.step);
}

void describe_resume(const UnstartedRun& start, const fs::path& resumed) {
  const std::int64_t step = start.objects.state.step, last = start.objects.plan.max_steps;
  start.run.log.info("resumed from {} at step {} of {}", resumed.string(), step, last);
  if (step > last)
    start.run.log.warn(
        "the config ends at step {}, but {} steps are done: use --resume with an earlier checkpoint or never", last,
        step);
}

}  // namespace

std::optional<fs::path> start_or_resume(const UnstartedRun& start, const ResumeFrom& from) {
  const RunContext& run = start.run;
  const ModelSetup& setup = start.objects.setup;
  // An adapter run's checkpoints do not contain the frozen base weights.
  load_weights(run.ctx, start.objects.runner, {.setup = setup, .seed = static_cast<std::uint64_t>(run.training().seed)},
               run.log);
  run.ctx.synchronize();  // also waits for the ranks' exchanges: one rank loads while the hosts of the others wait
  std::optional<fs::path> resumed = start.checkpoints.restore(from);
  if (resumed) {
    clear_way(start, from, *resumed);
    describe_resume(start, *resumed);
  } else {
    describe_random_weights(setup, run);
  }
  start.output.disown_result({.step = start.objects.state.step, .resumed = resumed});
  return resumed;
}

}  // namespace qtrain
