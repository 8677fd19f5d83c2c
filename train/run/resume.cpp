#include "train/run/resume.h"

#include "core/utf8.h"
#include "plan/adapter_start.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// A resumed run takes its weights from the checkpoint.
void describe_random_weights(const Run& run) {
  const ModelSetup& setup = run.model.setup;
  if (const auto advice = advice_on_weights(setup)) run.log.warn("{}", *advice);
  if (!setup.random_init || setup.model->options().base == Update::frozen) return;
  run.log.info("the model starts from random weights, seed {}", run.training().seed);
}

void describe_resume(const Run& run, const fs::path& resumed) {
  const std::int64_t step = run.state.step, last = run.plan().max_steps;
  run.log.info("resumed from {} at step {} of {}", one_line(resumed.string()), step, last);
  if (step > last)
    run.log.warn(
        "the config ends at step {}, but {} steps are done: use --resume with an earlier checkpoint, or --resume never",
        last, step);
}

}  // namespace

std::optional<fs::path> start_or_resume(Run& run, const OutputFolder& output, RunCheckpoints& checkpoints) {
  // An adapter run's checkpoints do not contain the frozen base weights.
  WeightSource source{.setup = run.model.setup, .seed = static_cast<std::uint64_t>(run.training().seed)};
  if (!run.from.checkpoints.empty()) source.resumed = run.from.checkpoints.front();
  if (run.from.checkpoints.empty())
    if (const auto remark = remark_on_start(run.model.runner->model(), run.ctx.pool().size()))
      run.log.info("{}", *remark);
  load_weights(run.ctx, *run.model.runner, source, run.log);
  run.ctx.synchronize();  // also waits for the ranks' exchanges: one rank loads while the hosts of the others wait
  std::optional<fs::path> resumed = checkpoints.restore();
  if (resumed) {
    if (!run.from.named)
      checkpoints.rotate(*resumed);  // left behind by a kill between a save and its rotation
    else if (output.holds(*resumed))
      output.set_aside_after(run.state.step);
    describe_resume(run, *resumed);
  } else {
    describe_random_weights(run);
  }
  run.state.evaluations = {run.training(), run.schedule.plateau, run.state.log_history};
  output.disown_result({.step = run.state.step, .resumed = resumed});
  return resumed;
}

}  // namespace qtrain
