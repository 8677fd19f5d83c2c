#include "train/tune/trial_run.h"

#include <utility>

namespace qtrain {
namespace {

Run loaded_run(const RunContext& context, std::shared_ptr<RunData> data) {
  make_batches(*data, context);
  RunModel model = allocate_run_model(context, *data, declare_run_model(context, *data));
  load_weights(context.ctx, *model.runner,
               {.setup = model.setup, .seed = static_cast<std::uint64_t>(context.training().seed)}, context.log);
  return {context, std::move(data), {.kind = ScheduleKind::constant}, std::move(model), {}, {}};
}

}  // namespace

TrialRun::TrialRun(const RunContext& context, std::shared_ptr<RunData> data)
    : run_(loaded_run(context, std::move(data))), steps_(run_) {}

std::int64_t warm_up_steps(Device device) {
  return device.kind == DeviceKind::cpu ? 1 : 2;
}

}  // namespace qtrain
