#include "train/tune/trial_run.h"

namespace qtrain {
namespace {

RunModel loaded_model(const RunContext& run, RunData& data) {
  make_batches(data, run);
  RunModel model = allocate_run_model(run, data, declare_run_model(run, data));
  load_weights(run.ctx, *model.runner, {.setup = model.setup, .seed = static_cast<std::uint64_t>(run.training().seed)},
               run.log);
  return model;
}

}  // namespace

TrialRun::TrialRun(const RunContext& run, RunData& data)
    : model_(loaded_model(run, data)),
      steps_(run, {.data = data, .model = model_, .state = state_, .schedule = {.kind = ScheduleKind::constant}}) {}

std::int64_t warm_up_steps(Device device) {
  return device.kind == DeviceKind::cpu ? 1 : 2;
}

}  // namespace qtrain
