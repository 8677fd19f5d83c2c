#include "train/disk_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace qtrain {

// A checkpoint holds the trained weights and the optimizer's state. Those that are kept, and one in the making.
DiskPlan plan_disk(const TrainingSection& t, const ModelSetup& setup, std::int64_t steps) {
  const auto bytes_of = [](const Param& p, DType dtype) {
    return static_cast<double>(p.spec.shape.numel()) * static_cast<double>(size_of(dtype));
  };
  DiskPlan plan;
  for (const Param& p : setup.model->adapter().all())
    if (p.trained()) plan.result += bytes_of(p, p.spec.dtype);
  double state = plan.result;
  if (!setup.model->options().lora)
    for (const Param& p : setup.model->weights().all()) {
      plan.result += bytes_of(p, setup.saved_dtype);
      if (p.trained()) state += bytes_of(p, p.spec.dtype);
    }
  state +=
      static_cast<double>(optimizer_memory(*make_rule(optimizer_options(t)), setup.model->trained(), Device{}).state);
  plan.checkpoint = t.save_only_model ? plan.result : plan.result + state;
  if (t.save_strategy == SaveStrategy::steps)
    plan.checkpoints = steps / std::max<std::int64_t>(1, interval_steps(t.save_steps, steps)) + 1;
  if (t.save_strategy == SaveStrategy::epoch) plan.checkpoints = static_cast<std::int64_t>(t.num_train_epochs) + 1;
  if (t.save_total_limit) plan.checkpoints = std::min(plan.checkpoints, *t.save_total_limit + 1);
  return plan;
}

std::optional<ErrorText> disk_problem(const DiskPlan& plan, double free) {
  constexpr double kMb = 1e6;
  if (free <= 0 || plan.result <= free) return {};
  return ErrorText{
      .cause = fmt::format("the result takes {:.1f} MB, and {:.1f} MB are free", plan.result / kMb, free / kMb),
      .place = {},
      .remedy = "make room, or name another output_dir"};
}

}  // namespace qtrain
