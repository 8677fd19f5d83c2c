#include "train/run/train.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "core/timeline.h"
#include "dist/queued_collective.h"
#include "report/report_page.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/foreign_results.h"
#include "train/run/final_result.h"
#include "train/run/resume.h"
#include "train/run/run.h"
#include "train/run/training_loop.h"
#include "train/setup/compute.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

void write_resolved_config(const Run& run) {
  if (!run.leads()) return;
  Json resolved = resolved_config(run, *run.data, run.metadata.provenance);
  resolved["run"]["memory_plan"] = run.model.memory.json();
  write_file(run.output_dir() / kResolvedConfig, dump_json(resolved, 2) + "\n");
}

/// Writes report.html on destruction, however the run of this rank ended.
class ReportAtTheEnd {
 public:
  explicit ReportAtTheEnd(const RunContext& run) : run_(run) {}
  ~ReportAtTheEnd() {
    if (!run_.leads()) return;
    try {
      const fs::path output = run_.output_dir();
      write_file(output / "report.html", report_page({read_run(output, RunOf::this_process)}));
    } catch (const std::exception& e) {
      run_.log.warn("could not write report.html: {}", e.what());
    }
  }
  ReportAtTheEnd(const ReportAtTheEnd&) = delete;
  ReportAtTheEnd& operator=(const ReportAtTheEnd&) = delete;

 private:
  const RunContext& run_;
};

TrainingResult stopped(const Run& run, RunLog& run_log, TrainingResult result) {
  const std::int64_t step = run.state.step, last = run.plan().max_steps;
  run_log.add_end("stopped",
                  fmt::format("stopped at step {} of {}{}", step, last, stop_requested() ? kStoppedBySignal : ""));
  run_log.end_tracking(static_cast<int>(ErrorKind::stopped));
  run.log.warn("stopped at step {} of {}; run the same command {}to continue", step, last,
               run.from.named ? "with --resume auto " : "");
  result.exit_code = static_cast<int>(ErrorKind::stopped);
  return result;
}

/// How a start goes on from what earlier ones left.
struct Course {
  std::int64_t stop_after = 0;
  EarlierEnd earlier = {};
};

TrainingResult take_steps(Run& run, RunLog& run_log, RunCheckpoints& checkpoints, const Course& course) {
  TrainingLoop loop(run, run_log, checkpoints);
  const bool done = loop.run(course.stop_after);
  TrainingResult result{.json = {{"output_dir", run.output_dir().string()},
                                 {"step", run.state.step},
                                 {"max_steps", run.plan().max_steps}}};
  if (!done) return stopped(run, run_log, std::move(result));
  FinalResult final = finish_run(run, run_log, checkpoints, course.earlier);
  run_log.end_tracking(0);
  result.json.update(final.totals);
  result.summary = std::move(final.summary);
  return result;
}

/// Disk errors often happen in the middle of a long run, so add which checkpoint is intact.
Error naming_what_survives(const Error& error, const fs::path& output) {
  if (error.kind() != ErrorKind::disk) return error;
  const std::vector<fs::path> saved = find_checkpoints(output);
  const std::string survives =
      saved.empty() ? "no checkpoint was saved: the same command starts over"
                    : fmt::format("{} is intact: the same command resumes from it", saved.back().string());
  ErrorText text = error.text();
  text.remedy += (text.remedy.empty() ? "" : "\n  ") + survives;
  return {error.kind(), text};
}

TrainingResult drive(Run& run, const OutputFolder& output, std::int64_t stop_after) {
  RunCheckpoints checkpoints(run);
  run.phases.begin("loading weights");
  const auto resumed = start_or_resume(run, output, checkpoints);
  const Course course{.stop_after = stop_after, .earlier = earlier_end(run, output, resumed)};
  RunLog run_log(run);
  if (!course.earlier.has_config) write_resolved_config(run);
  const ReportAtTheEnd report(run);
  // A failure to record the end must not hide why the run failed.
  const auto record_end = [&](const char* why, int exit_code) {
    try {
      run_log.add_end("failed", why);
      run_log.end_tracking(exit_code);
    } catch (const std::exception& e) {
      run.log.warn("could not record how the run ended: {}", e.what());
    }
  };
  try {
    return take_steps(run, run_log, checkpoints, course);
  } catch (const Error& e) {
    const Error advised = naming_what_survives(e, output.path());
    record_end(advised.what(), advised.exit_code());
    throw advised;
  } catch (const std::exception& e) {
    record_end(e.what(), static_cast<int>(ErrorKind::internal));
    throw;
  }
}

/// Records a timeline of this rank while alive, and writes it on destruction.
class Profile {
 public:
  explicit Profile(const RunContext& run)
      : file_(run.output_dir() / fmt::format("trace-rank-{}.json", run.ranks.rank())),
        process_{.number = run.ranks.rank(),
                 .name = fmt::format("rank {}", run.ranks.rank()),
                 .label = run.ctx.device().kind == DeviceKind::cuda ? "GPU: when work was queued" : "CPU"},
        log_(run.log) {
    timeline::start();
    timeline::name_thread("training");
  }
  ~Profile() {
    try {
      if (const std::int64_t dropped = timeline::write(file_, process_); dropped > 0)
        log_.warn("the timeline ends before the run does: {} did not fit; profile fewer steps (max_steps)",
                  counted(dropped, "span"));
    } catch (const Error& e) {
      log_.warn("could not write the timeline: {}", e.what());
    }
  }
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

 private:
  fs::path file_;
  timeline::Process process_;
  Log& log_;
};

// The ranks that share the tokens of micro-batches with this one.
std::unique_ptr<Collective> sharing_ranks(const ResolvedConfig& config, Device device, Collective& ranks) {
  const int size = static_cast<int>(config.value.run.context_parallel_size);
  if (ranks.size() % size != 0)
    fail(ErrorKind::usage, {.cause = fmt::format("context_parallel_size is {}, which does not divide the {} of the run",
                                                 size, counted(ranks.size(), "rank")),
                            .place = config.origin.at("context_parallel_size"),
                            .remedy = "set nproc to a multiple of it, or set it to 1"});
  if (size == 1) return std::make_unique<Solo>();
  std::unique_ptr<Collective> part = ranks.part(ranks.rank() / size * size, size);
  part->label("keys: ");
  if (device.kind == DeviceKind::cuda) return part;  // the device runs queued exchanges without the host
  return std::make_unique<QueuedCollective>(std::move(part), "keys");
}

}  // namespace

TrainingResult train(const TrainingStart& start, Log& log) {
  const ResolvedConfig& config = start.config;
  const bool leads = start.ranks.rank() == 0;
  const fs::path folder = config.value.training.output_dir;
  if (leads) start.overwrite ? require_other_runs_stay(folder) : require_no_foreign_results(folder);
  const OutputFolder output(folder, leads ? OutputFolder::Role::leads : OutputFolder::Role::follows, log);
  if (leads && start.overwrite) fs::remove(folder / kResultMark);  // this run owns the weights from now on
  ComputeChoice compute = compute_choice(config.value);
  compute.gpu = start.gpu;
  std::optional<PrometheusEndpoint> prometheus;
  if (const RunSection& r = config.value.run; leads && r.prometheus_port) {
    prometheus.emplace(PrometheusEndpoint::Place{.host = r.prometheus_host,
                                                 .port = static_cast<int>(*r.prometheus_port),
                                                 .output_dir = config.value.training.output_dir});
    log.info("Prometheus: http://{}:{}/metrics", r.prometheus_host, *r.prometheus_port);
  }
  StartPhases phases(log);
  phases.begin("opening the device");
  Ctx ctx = make_context(compute, log);
  const std::unique_ptr<Collective> sharing = sharing_ranks(config, ctx.device(), start.ranks);
  IgnoredKeys ignored(config, log);
  const RunContext context{.config = config,
                           .ctx = ctx,
                           .log = log,
                           .ignored = ignored,
                           .phases = phases,
                           .ranks = start.ranks,
                           .sharing = *sharing,
                           .prometheus = prometheus ? &*prometheus : nullptr};
  Run run = prepare_run(context, output, start.resume);
  if (config.value.run.nvtx) nvtx::start();
  if (!config.value.run.profile) return drive(run, output, start.stop_after);
  const Profile profile(run);
  return drive(run, output, start.stop_after);
}

}  // namespace qtrain
