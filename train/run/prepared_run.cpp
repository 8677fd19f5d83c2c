#include "train/run/prepared_run.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "train/plan/disk_plan.h"
#include "train/plan/machine.h"

namespace qtrain {
namespace {

// Hours of training are lost where the result cannot be written.
void require_room(const RunContext& run, const ResumeFrom& from, DiskPlan plan) {
  const std::filesystem::path output = run.training().output_dir;
  const auto there = static_cast<std::int64_t>(from.checkpoints.size());  // the next one is written beside them
  if (!from.named && plan.checkpoints > 0) plan.checkpoints = std::max<std::int64_t>(plan.checkpoints - there, 1);
  DiskVerdict verdict = judge_disk(plan, free_disk(output));
  if (verdict.warning) run.log.warn("{}: {}", output.string(), *verdict.warning);
  if (!verdict.problem) return;
  verdict.problem->place = output.string();
  fail(ErrorKind::disk, std::move(*verdict.problem));
}

Schedule schedule_of(const TrainingSection& t, const StepPlan& plan) {
  return make_schedule({.kind = t.lr_scheduler_type,
                        .learning_rate = t.learning_rate,
                        .warmup_steps = warmup_steps(t, plan.max_steps),
                        .total_steps = plan.max_steps,
                        .kwargs = t.lr_scheduler_kwargs});
}

}  // namespace

PreparedRun prepare_run(const RunContext& run, const OutputFolder& output, const std::string& resume) {
  ResumeFrom from = output.resume_from(resume);
  auto data = load_run_data(run, from.checkpoints);
  ModelSetup declared = declare_run_model(run, *data);
  require_room(run, from, plan_disk(run.training(), declared, data->plan));
  const Schedule schedule = schedule_of(run.training(), data->plan);
  RunModel model = allocate_run_model(run, *data, std::move(declared));
  RunMetadata metadata = run_metadata(run, *data, model.setup);
  if (resume == "never") output.start_over();
  return {.from = std::move(from),
          .data = std::move(data),
          .schedule = schedule,
          .model = std::move(model),
          .metadata = std::move(metadata)};
}

}  // namespace qtrain
