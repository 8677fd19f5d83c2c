#include "train/run/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/utf8.h"
#include "plan/disk_plan.h"
#include "plan/machine.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// Fail early rather than lose hours of training because the result cannot be written.
void require_room(const RunContext& run, const ResumeFrom& from, DiskPlan plan) {
  const fs::path output = run.training().output_dir;
  const auto there = static_cast<std::int64_t>(from.checkpoints.size());  // the next one is written before the oldest
                                                                          // is deleted
  if (!from.named && plan.checkpoints > 0) plan.checkpoints = std::max<std::int64_t>(plan.checkpoints - there, 1);
  DiskVerdict verdict = judge_disk(plan, free_disk(output));
  if (verdict.warning) run.log.warn("{}: {}", one_line(output.string()), *verdict.warning);
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

// What the leading rank found; it cleans up the directory first.
ResumeFrom shared_resume(const RunContext& run, const OutputFolder& output, const std::string& resume) {
  constexpr char kEnd = '\0';  // no path contains it, and JSON could not hold paths that are not UTF-8
  std::string found;
  if (run.leads()) {
    const ResumeFrom from = output.resume_from(resume);
    found = from.named ? "named" : "found";
    for (const fs::path& checkpoint : from.checkpoints) found += kEnd + checkpoint.string();
  }
  std::istringstream parts(broadcast_text(run.ctx, run.ranks, found));
  std::string part;
  std::getline(parts, part, kEnd);
  ResumeFrom from{.named = part == "named"};
  while (std::getline(parts, part, kEnd)) from.checkpoints.emplace_back(part);
  return from;
}

// Ranks with different rows or weights would go unnoticed, since their gradients add up all the same.
void require_same_run(const RunContext& run, const Json& identity) {
  const std::vector<std::string> all = gather_texts(run.ctx, run.ranks, dump_json(identity));
  const Json first = Json::parse(all[0]);
  for (std::size_t r = 1; r < all.size(); ++r) {
    const Json difference = Json::diff(first, Json::parse(all[r]));
    if (difference.empty()) continue;
    std::vector<std::string> places;
    for (const Json& change : difference) places.push_back(change.at("path").get<std::string>().substr(1));
    fail(ErrorKind::usage, {.cause = fmt::format("rank {} differs from rank 0 in {}", r, fmt::join(places, ", ")),
                            .remedy = "start every rank with the same config, data and model"});
  }
}

// Each rank writes its shard of a checkpoint: fail early if they do not share the output directory.
void require_shared_output(const RunContext& run, const OutputFolder& output) {
  const std::string name = broadcast_text(
      run.ctx, run.ranks,
      fmt::format(".ranks.{}.{}", ::getpid(), std::chrono::steady_clock::now().time_since_epoch().count()));
  const fs::path probe = output.path() / name;
  if (run.leads()) write_file(probe, "");
  run.ranks.barrier(run.ctx);
  const std::vector<std::string> seen = gather_texts(run.ctx, run.ranks, path_exists(probe) ? "yes" : "no");
  if (run.leads()) fs::remove(probe);
  for (std::size_t r = 0; r < seen.size(); ++r)
    if (seen[r] == "no")
      fail(ErrorKind::disk, {.cause = fmt::format("rank {} does not see the files that rank 0 writes there", r),
                             .place = output.path().string(),
                             .remedy = "with zero_stage every rank writes its shard of a checkpoint: use an output_dir "
                                       "that all machines share, or set zero_stage to 0"});
}

}  // namespace

TrainingObjects Run::objects() {
  return {.ctx = ctx,
          .setup = model.setup,
          .runner = *model.runner,
          .text = data->text,
          .optimizer = *model.optimizer,
          .state = state,
          .training = training(),
          .plan = plan(),
          .identity = metadata.identity,
          .ranks = ranks};
}

Run prepare_run(const RunContext& context, const OutputFolder& output, const std::string& resume) {
  ResumeFrom from = shared_resume(context, output, resume);
  context.phases.begin("tokenizing");
  std::shared_ptr<RunData> data = load_run_data(context, from.checkpoints);
  context.phases.begin("reading the model");
  ModelSetup declared = declare_run_model(context, *data);
  if (declared.model->options().sharding.divides_trained()) require_shared_output(context, output);
  require_room(context, from, plan_disk(context.training(), declared, data->plan));
  const Schedule schedule = schedule_of(context.training(), data->plan);
  context.phases.begin("planning memory");
  RunModel model = allocate_run_model(context, *data, std::move(declared));
  context.phases.begin("hashing the model");
  RunMetadata metadata = run_metadata(context, *data, model.setup);
  require_same_run(context, metadata.identity);
  if (resume == "never") output.start_over();
  return {context, std::move(data), schedule, std::move(model), std::move(metadata), std::move(from)};
}

}  // namespace qtrain
