#include "plan/disk_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plural.h"

namespace qtrain {

std::int64_t max_checkpoints(const TrainingSection& t, const StepPlan& steps) {
  const auto every = [&](double n) { return std::max<std::int64_t>(1, interval_steps(n, steps.max_steps)); };
  const std::int64_t epoch = steps.updates_per_epoch;
  std::int64_t between = 0;
  switch (t.save_strategy) {
    case SaveStrategy::no: return 0;
    case SaveStrategy::steps: between = every(t.save_steps); break;
    case SaveStrategy::epoch: between = epoch; break;
    case SaveStrategy::best:
      if (t.eval_strategy == EvalStrategy::no) return 0;
      between = t.eval_strategy == EvalStrategy::epoch ? epoch : every(t.eval_steps.value_or(t.logging_steps));
  }
  const std::int64_t saved = (steps.max_steps + between - 1) / between;
  // The checkpoints that are kept, and one being written.
  return t.save_total_limit ? std::min(saved, std::max<std::int64_t>(*t.save_total_limit, 1) + 1) : saved;
}

// A checkpoint holds the trained weights and the optimizer's state.
DiskPlan plan_disk(const TrainingSection& t, const ModelSetup& setup, const StepPlan& steps) {
  const auto bytes_of = [](const Param& p, DType dtype) {
    return static_cast<double>(p.spec.shape.numel()) * static_cast<double>(size_of(dtype));
  };
  DiskPlan plan;
  for (const Param& p : setup.model->adapter().all())
    if (p.trained()) plan.result += bytes_of(p, p.spec.dtype);
  double state = 0;
  if (!setup.model->options().lora)
    for (const Param& p : setup.model->weights().all()) {
      plan.result += bytes_of(p, setup.saved_dtype);
      if (setup.saved_dtype != DType::f32) state += bytes_of(p, p.spec.dtype);  // the master weights
    }
  const auto rule = make_rule(optimizer_options(t));
  for (const Param* p : setup.model->trained())  // the state of all ranks
    for (const StateSpec& s : rule->state_of(p->spec))
      state += static_cast<double>(s.shape.numel()) * static_cast<double>(size_of(s.dtype));
  plan.checkpoint = t.save_only_model ? plan.result : plan.result + state;
  plan.checkpoints = max_checkpoints(t, steps);
  return plan;
}

DiskVerdict judge_disk(const DiskPlan& plan, std::optional<double> free) {
  constexpr double kMb = 1e6;
  if (!free || plan.total() <= *free) return {};
  const std::string there = fmt::format("only {:.1f} MB are free", *free / kMb);
  if (plan.least() <= *free)
    return {.problem = {},
            .warning = fmt::format("the run will write about {:.1f} MB ({} of {:.1f} MB), but {}", plan.total() / kMb,
                                   counted(plan.checkpoints, "checkpoint"), plan.checkpoint / kMb, there)};
  const std::string beside =
      plan.checkpoints > 0 ? fmt::format(", plus {:.1f} MB for a checkpoint", plan.checkpoint / kMb) : "";
  return {.problem =
              ErrorText{.cause = fmt::format("the result needs {:.1f} MB{}, but {}", plan.result / kMb, beside, there),
                        .place = {},
                        .remedy = "free some disk space, or choose another output_dir"},
          .warning = {}};
}

}  // namespace qtrain
