#include "train/tune/step_profile.h"

#include <algorithm>
#include <numeric>

#include "core/os/stop.h"
#include "core/statistics.h"
#include "dist/collective.h"
#include "kernels/processor.h"
#include "report/metrics.h"
#include "train/setup/compute.h"
#include "train/tune/trial_run.h"

namespace qtrain {
namespace {

std::string name_of_device(Ctx& ctx) {
  return ctx.device().kind == DeviceKind::cuda ? cuda_info(ctx.device().index).name : describe_cpu();
}

}  // namespace

double StepProfile::attributed() const {
  return std::accumulate(rows.begin(), rows.end(), 0.0,
                         [](double sum, const LaunchTimes::Row& row) { return sum + row.seconds; });
}

double StepProfile::gaps() const {
  return std::max(seconds - attributed(), 0.0);
}

StepProfile profile_step(const ResolvedConfig& config, const StepProfileOptions& options, Log& log) {
  const std::size_t before = allocated_bytes(plan_compute(compute_choice(config.value)).device.kind).now;
  Ctx ctx = make_context(compute_choice(config.value), log);
  const std::int64_t warm_up = warm_up_steps(ctx.device());
  ResolvedConfig limited = config;
  limited.value.training.max_steps = warm_up + options.steps + 1;
  limited.value.run.max_nonfinite_steps = limited.value.training.max_steps;  // only speed matters here
  Solo solo;
  IgnoredKeys ignored(limited, log);
  StartPhases phases(log);
  const RunContext run{
      .config = limited, .ctx = ctx, .log = log, .ignored = ignored, .phases = phases, .ranks = solo, .sharing = solo};
  TrialRun trial(run, load_run_data(run, {}));
  StepProfile profile{.device = name_of_device(ctx),
                      .micro_batches = config.value.training.gradient_accumulation_steps,
                      .planned = trial.model().memory.total()};
  std::vector<double> seconds;
  for (std::int64_t step = 0; step < warm_up + options.steps; ++step) {
    throw_if_stopped();
    const Stopwatch watch;
    profile.tokens = trial.next().tokens;
    if (step >= warm_up) seconds.push_back(watch.seconds());
  }
  profile.seconds = median(std::move(seconds));
  profile.allocated = allocated_bytes(ctx.device().kind).now - before;
  throw_if_stopped();
  LaunchTimes times(ctx.stream());
  trial.next();
  profile.rows = times.rows();
  return profile;
}

}  // namespace qtrain
