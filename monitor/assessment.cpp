#include "monitor/assessment.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/progress.h"

namespace qtrain::monitor {
namespace {

constexpr double kSoon = 600;                                                     // seconds
constexpr double kNearlyFull = 0.97, kGrowth = 0.01;                              // fractions of the total
constexpr double kOftenLimited = 0.1, kMostlyLimited = 0.5;                       // fractions of the samples
constexpr double kLowClock = 0.85;                                                // fraction of the maximum clock
constexpr double kMuchWaiting = 10, kOftenStopped = 10;                           // percent
constexpr double kBusyGpu = 80, kIdleGpu = 5, kSlackGpu = 60, kMuchTraffic = 60;  // percent
constexpr double kBusyCores = 0.7, kIdleCores = 0.1;                              // fractions of the usable cores

double mean_of(const Series& series, std::string_view key) {
  const Statistics* s = find(series, key);
  return s != nullptr ? s->mean() : 0;
}

/// A warning if memory is nearly full, or will be soon if it keeps growing.
std::optional<std::string> memory_warning(const std::string& whose, const Statistics* used, double total) {
  if (used == nullptr || total <= 0) return {};
  const std::string level =
      fmt::format("{} is {} of {}", whose, in_unit(used->last(), Unit::bytes), in_unit(total, Unit::bytes));
  if (used->last() > kNearlyFull * total) return level;
  const double slope = used->slope(), left = (total - used->last()) / slope;
  const bool grows = used->count() >= 5 && slope > 0 && used->last() - used->first() > kGrowth * total;
  if (!grows || left > kSoon) return {};
  return fmt::format("{} and grows by {}: it will be full in about {}", level, in_unit(slope, Unit::bytes_per_second),
                     format_duration(left));
}

void judge_memory(const Summary& s, std::vector<Finding>& findings) {
  const auto add = [&](const std::optional<std::string>& warning) {
    if (warning) findings.push_back({"out_of_memory_soon", "out of memory soon: " + *warning});
  };
  add(memory_warning("memory in use", find(s.host, "memory_used_bytes"), s.usable_memory));
  for (const Summary::Gpu& gpu : s.gpus)  // runs fill a GPU as planned, so only growth matters
    if (const Statistics* used = find(gpu.series, "memory_used_bytes"); used != nullptr && used->most() > used->least())
      add(memory_warning(fmt::format("memory of GPU {}", gpu.index), used, gpu.memory_total));
}

double share(std::int64_t part, std::int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

void judge_throttling(const Summary& s, std::vector<Finding>& findings) {
  for (const Summary::Gpu& gpu : s.gpus) {
    const double clock = mean_of(gpu.series, "sm_clock_mhz"), heat = share(gpu.heat_limited, gpu.samples),
                 power = share(gpu.power_limited, gpu.samples);
    const std::string clocks = fmt::format("{:.0f} of {:.0f} MHz", clock, gpu.max_clock);
    if (heat >= kOftenLimited)
      findings.push_back(
          {"throttled", fmt::format("throttled: heat or the power supply limits GPU {} in {:.0f} % of the "
                                    "samples; it runs at {} and reaches {:.0f} C",
                                    gpu.index, 100 * heat, clocks,
                                    find(gpu.series, "temperature_celsius") != nullptr
                                        ? find(gpu.series, "temperature_celsius")->most()
                                        : 0)});
    else if (power >= kMostlyLimited && clock < kLowClock * gpu.max_clock)
      findings.push_back(
          {"throttled", fmt::format("throttled: the power limit keeps GPU {} at {} in {:.0f} % of the samples "
                                    "({:.0f} W)",
                                    gpu.index, clocks, 100 * power, mean_of(gpu.series, "power_watts"))});
  }
  if (const double stopped = mean_of(s.host, "cpu_throttled_percent"); stopped >= kOftenStopped)
    findings.push_back(
        {"throttled", fmt::format("throttled: the container's limit of {:.1f} cores stops its processes in {:.0f} % "
                                  "of the scheduling periods",
                                  s.usable_cores, stopped)});
}

/// GPUs that did any work.
std::vector<const Summary::Gpu*> active_gpus(const Summary& s) {
  std::vector<const Summary::Gpu*> active;
  for (const Summary::Gpu& gpu : s.gpus)
    if (mean_of(gpu.series, "utilization_percent") >= kIdleGpu) active.push_back(&gpu);
  return active;
}

double mean_over(const std::vector<const Summary::Gpu*>& gpus, std::string_view key) {
  double sum = 0;
  for (const Summary::Gpu* gpu : gpus) sum += mean_of(gpu->series, key);
  return gpus.empty() ? 0 : sum / static_cast<double>(gpus.size());
}

/// Busy cores, of the watched process or else of the machine.
double working_cores(const Summary& s) {
  return s.watches_process ? mean_of(s.host, "process_cpu_cores") : mean_of(s.host, "cpu_percent") / 100 * s.processors;
}

Finding judge_gpus(const Summary& s, const std::vector<const Summary::Gpu*>& gpus) {
  const double busy = mean_over(gpus, "utilization_percent"), traffic = mean_over(gpus, "memory_traffic_percent");
  const std::string which_are =
      gpus.size() == 1 ? fmt::format("GPU {} is", gpus[0]->index) : fmt::format("{} GPUs are", gpus.size());
  if (busy >= kBusyGpu && traffic >= kMuchTraffic)
    return {"memory_bound",
            fmt::format("memory-bound: {} busy {:.0f} % of the time and moving data {:.0f} % of the time: larger "
                        "batches or smaller data types do more work per byte",
                        which_are, busy, traffic)};
  if (busy >= kBusyGpu) return {"healthy", fmt::format("healthy: {} busy {:.0f} % of the time", which_are, busy)};
  if (const double cores = working_cores(s); busy < kSlackGpu && cores >= 0.9)
    return {"starved",
            fmt::format("starved for data: {} busy only {:.0f} % of the time while {:.1f} cores of the host are busy: "
                        "the host does not prepare work fast enough",
                        which_are, busy, cores)};
  return {"underused", fmt::format("underused: {} busy only {:.0f} % of the time: larger batches would use more of it",
                                   which_are, busy)};
}

Finding judge_processors(const Summary& s) {
  const double cores = working_cores(s), used = cores / s.usable_cores;
  const std::string figures =
      fmt::format("{}{:.2f} of {:.{}f} cores {}busy{}", s.watches_process ? "the process keeps " : "", cores,
                  s.usable_cores, s.usable_cores == static_cast<int>(s.usable_cores) ? 0 : 1,
                  s.watches_process ? "" : "are ", s.gpus.empty() ? "" : "; no GPU is busy");
  if (used >= kBusyCores) return {"healthy", "healthy: " + figures};
  if (used < kIdleCores) return {"idle", "idle: " + figures};
  return {"underused", "underused: " + figures};
}

}  // namespace

std::vector<Finding> assess(const Summary& s) {
  if (!s.ended.empty()) return {{"ended", "ended: " + s.ended}};
  std::vector<Finding> findings;
  if (s.samples == 0) return {{"idle", "nothing was measured: monitoring ended before the first sample"}};
  judge_memory(s, findings);
  judge_throttling(s, findings);
  const Statistics* wait = find(s.run, "data_wait_percent");
  const bool waits = wait != nullptr && wait->mean() >= kMuchWaiting;
  if (waits)
    findings.push_back(
        {"starved", fmt::format("starved for data: the run waits for rows {:.0f} % of the time; prepare them in "
                                "advance (qtrain preprocess), or raise dataloader_num_workers",
                                wait->mean())});
  const auto active = active_gpus(s);
  const Finding work = active.empty() ? judge_processors(s) : judge_gpus(s, active);
  const bool is_well = work.kind == "healthy" || work.kind == "underused";
  if (findings.empty() || (!is_well && work.kind != findings.back().kind)) findings.push_back(work);
  return findings;
}

Json assessment_json(const std::vector<Finding>& findings) {
  Json json{{"verdict", findings.front().kind}, {"findings", Json::array()}};
  for (const Finding& f : findings) json["findings"].push_back({{"kind", f.kind}, {"text", f.text}});
  return json;
}

}  // namespace qtrain::monitor
