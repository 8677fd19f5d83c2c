#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/os/terminal.h"
#include "monitor/assessment.h"
#include "monitor/sample_file.h"
#include "monitor/table.h"
#include "report/metrics.h"
#include "train/checkpoint/output_lock.h"

namespace qtrain::monitor {
namespace {

namespace fs = std::filesystem;

constexpr double kMinInterval = 0.05;  // minimum seconds between two readings to compute rates from
constexpr auto kPollInterval = std::chrono::milliseconds(20);

struct Options {
  double interval = 1, duration = 0;  ///< seconds; duration 0 runs until stopped
  std::optional<std::int64_t> pid;
  std::optional<fs::path> run, file;
};

double positive(const Arguments& args, const char* flag, double otherwise) {
  const double value = args.number(flag).value_or(otherwise);
  if (args.has(flag) && value < kMinInterval)
    fail(ErrorKind::usage,
         {.cause = fmt::format("--{} is {:g}, but must be at least {} seconds", flag, value, kMinInterval)});
  return value;
}

Options options_of(const Arguments& args, const Host& host) {
  Options options{.interval = positive(args, "interval", 1), .duration = positive(args, "duration", 0)};
  options.pid = args.integer("pid");
  if (const auto run = args.text("run")) options.run = *run;
  if (const auto file = args.text("json")) options.file = *file;
  if (options.run && !is_folder(*options.run))
    fail(ErrorKind::input, {.cause = "is not a folder",
                            .place = options.run->string(),
                            .remedy = "give the output_dir of a run with --run"});
  if (options.pid && !host.process(*options.pid))
    fail(ErrorKind::usage, {.cause = fmt::format("there is no process {}", *options.pid),
                            .remedy = "give the id of a running process (pgrep qtrain lists them)"});
  return options;
}

std::string no_writer_text(const fs::path& run) {
  return fmt::format("no running process writes to {}", run.string());
}

/// Samples the machine and the watched run, shows the samples and summarizes them.
class Watch {
 public:
  Watch(const Arguments& args, const Host& host, Options options)
      : log_(args.log()), host_(host), options_(std::move(options)), keeps_samples_(args.json()) {
    if (options_.run) rows_.emplace(*options_.run);
    if (options_.file) file_.emplace(*options_.file);
    if (options_.run && !options_.pid) options_.pid = host_.holder_of(*options_.run / ".lock");
    heading_ = {.interval = options_.interval,
                .duration = options_.duration,
                .no_gpu = gpus_.problem(),
                .unicode = shows_unicode()};
    if (options_.pid)
      heading_.watched =
          fmt::format("process {} ({})", *options_.pid, host_.process(*options_.pid).value_or(ProcessReading{}).name);
    before_ = reading();
    if (!before_.processes.empty()) started_ = before_.processes.front().started;
    summary_.watches_process = options_.pid.has_value();
    summary_.set_host(before_);
  }

  /// Runs until the duration is over, the watched process ends or a stop is requested.
  void run() {
    if (options_.run && !options_.pid && is_locked(*options_.run))
      log_.info("the process that writes to {} is not visible: it belongs to another user or container",
                options_.run->string());
    else if (options_.run && !options_.pid)
      log_.info("{}", no_writer_text(*options_.run));
    for (double due = options_.interval; !ended_; due += options_.interval) {
      const double end = options_.duration > 0 ? std::min(due, options_.duration) : due;
      while (watch_.seconds() < end && !stop_requested()) std::this_thread::sleep_for(kPollInterval);
      const bool last = stop_requested() || (options_.duration > 0 && due >= options_.duration);
      if (!last || summary_.samples == 0 || watch_.seconds() - before_.seconds >= options_.interval / 2) take();
      if (last) return;
      if (watch_.seconds() > due) due = watch_.seconds();  // the machine was suspended
    }
  }

  CommandResult result() {
    log_.end_live();
    if (ended_)
      summary_.ended = heading_.watched + " has ended";
    else if (options_.run && !options_.pid && !is_locked(*options_.run))
      summary_.ended = no_writer_text(*options_.run);
    Json rest{{"summary", summary_json(summary_)}, {"assessment", assessment_json(assess(summary_))}};
    if (!gpus_.problem().empty()) rest["no_gpu"] = gpus_.problem();
    if (file_) file_->set_rest(rest);
    CommandResult result{.text = summary_text(heading_, summary_, terminal_width(STDOUT_FILENO) - 1), .json = {}};
    result.json = {{"samples", std::move(samples_)}};
    result.json.update(rest);
    return result;
  }

 private:
  HostReading reading() const { return host_.read(watch_.seconds(), options_.pid); }

  void take() {
    HostReading now = reading();
    if (now.seconds - before_.seconds < kMinInterval) return;
    const bool same = !now.processes.empty() && now.processes.front().started == started_;
    if (options_.pid && !same) now.processes.clear();
    Sample sample{
        .seconds = now.seconds, .host = host_values(before_, now, host_.ticks_per_second()), .gpus = gpus_.read()};
    if (rows_) {
      sample.new_row = rows_->update();
      sample.run = rows_->last();
    }
    sample.processes = now.processes;
    ended_ = options_.pid && !same;
    summary_.set_host(now);
    summary_.add(sample);
    before_ = std::move(now);
    keep(sample);
    show(sample);
  }

  void keep(const Sample& sample) {
    if (!file_ && !keeps_samples_) return;
    Json json = sample_json(sample, unix_time());
    if (file_)
      file_->add(json, {{"summary", summary_json(summary_)}, {"assessment", assessment_json(assess(summary_))}});
    else
      samples_.push_back(std::move(json));
  }

  void show(const Sample& sample) {
    if (log_.shows_live())
      log_.live_block([&](int columns) { return live_view(heading_, sample, summary_, columns); });
    else
      log_.info("{}", sample_line(sample));
  }

  Log& log_;
  const Host& host_;
  Options options_;
  bool keeps_samples_, ended_ = false;
  Gpus gpus_;
  std::optional<RunRows> rows_;
  std::optional<SampleFile> file_;
  Heading heading_;
  Stopwatch watch_;
  HostReading before_;
  std::uint64_t started_ = 0;  ///< start time of the watched process
  Summary summary_;
  Json samples_ = Json::array();
};

}  // namespace
}  // namespace qtrain::monitor

namespace qtrain {

/// `qtrain monitor`: watches the machine and a run on it. A stop request ends it normally, like --duration.
int run_monitor(const Arguments& args) {
  const auto run = args.text("run");
  if (const auto file = args.text("json"))
    ResultFile(args, *file, run ? files_of_run(*run) : std::vector<std::filesystem::path>());
  const monitor::Host host;
  monitor::Watch watch(args, host, monitor::options_of(args, host));
  set_stop_answer("");
  watch.run();
  args.give(watch.result());
  return 0;
}

}  // namespace qtrain
