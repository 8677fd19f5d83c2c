#include "monitor/sample.h"

#include <algorithm>
#include <limits>
#include <set>

namespace qtrain::monitor {
namespace {

/// Processor time of all processes since the reading before. New processes count from 0; the last time of ended ones is
/// lost.
double family_ticks(const HostReading& before, const HostReading& now) {
  std::uint64_t ticks = 0;
  for (const ProcessReading& p : now.processes) {
    const auto same = [&](const ProcessReading& o) { return o.pid == p.pid && o.started == p.started; };
    const auto was = std::find_if(before.processes.begin(), before.processes.end(), same);
    ticks += counted_since(was == before.processes.end() ? 0 : was->cpu_ticks, p.cpu_ticks).value_or(0);
  }
  return static_cast<double>(ticks);
}

/// Bytes of the processes whose counters could be read both times; empty if there are none.
std::optional<double> family_bytes(const HostReading& before, const HostReading& now,
                                   std::optional<std::uint64_t> ProcessReading::*counter) {
  std::optional<double> bytes;
  for (const ProcessReading& p : now.processes)
    for (const ProcessReading& was : before.processes)
      if (was.pid == p.pid && was.started == p.started && was.*counter && p.*counter)
        bytes = bytes.value_or(0) + static_cast<double>(counted_since(*(was.*counter), *(p.*counter)).value_or(0));
  return bytes;
}

void put_rate(Values& values, std::string_view key, std::optional<std::uint64_t> counted, double seconds) {
  if (counted) values[key] = static_cast<double>(*counted) / seconds;
}

void put_family(Values& v, const HostReading& before, const HostReading& now, double ticks_per_second) {
  if (now.processes.empty()) return;
  const double seconds = now.seconds - before.seconds;
  double rss = 0;
  for (const ProcessReading& p : now.processes) rss += p.rss_bytes;
  v["process_rss_bytes"] = rss;
  v["process_cpu_cores"] = family_ticks(before, now) / ticks_per_second / seconds;
  const auto rate = [&](auto counter) -> std::optional<double> {
    const auto bytes = family_bytes(before, now, counter);
    return bytes ? std::optional(*bytes / seconds) : std::nullopt;
  };
  put(v, "process_read_bytes_per_second", rate(&ProcessReading::read_bytes));
  put(v, "process_write_bytes_per_second", rate(&ProcessReading::written_bytes));
}

Json json_of(const Values& values) {
  Json json = Json::object();
  for (const auto& [key, value] : values) json[std::string(key)] = value;
  return json;
}

Json gpu_json(const GpuReading& gpu) {
  Json json{{"index", gpu.index}, {"name", gpu.name}};
  if (!gpu.problem.empty()) json["problem"] = gpu.problem;
  json.update(json_of(gpu.values));
  json["limited_by"] = gpu.limited_by;
  json["processes"] = Json::array();
  for (const GpuProcess& p : gpu.processes)
    json["processes"].push_back({{"pid", p.pid}, {"memory_bytes", p.bytes ? Json(*p.bytes) : Json()}});
  return json;
}

Json series_json(const Series& series) {
  Json json = Json::object();
  for (const auto& [key, s] : series)
    if (s.count() > 0)
      json[std::string(key)] = {{"mean", s.mean()}, {"min", s.least()}, {"max", s.most()}, {"last", s.last()}};
  return json;
}

bool has_any(const GpuReading& gpu, std::initializer_list<std::string_view> limits) {
  return std::any_of(gpu.limited_by.begin(), gpu.limited_by.end(), [&](const std::string& by) {
    return std::find(limits.begin(), limits.end(), by) != limits.end();
  });
}

Summary::Gpu& gpu_of(Summary& summary, const GpuReading& gpu) {
  for (Summary::Gpu& g : summary.gpus)
    if (g.index == gpu.index) return g;
  return summary.gpus.emplace_back(Summary::Gpu{.index = gpu.index, .name = gpu.name});
}

}  // namespace

std::optional<std::uint64_t> counted_since(std::uint64_t before, std::uint64_t now) {
  constexpr std::uint64_t kWrap = std::uint64_t{1} << 32;
  if (now >= before) return now - before;
  const bool wrapped = before < kWrap && now + kWrap - before < kWrap / 2;
  return wrapped ? std::optional(now + kWrap - before) : std::nullopt;
}

Values host_values(const HostReading& before, const HostReading& now, double ticks_per_second) {
  Values v;
  const double seconds = now.seconds - before.seconds;
  if (seconds <= 0) return v;
  const auto busy = counted_since(before.cpu_busy, now.cpu_busy), all = counted_since(before.cpu_all, now.cpu_all);
  if (busy && all && *all > 0)
    v["cpu_percent"] = std::min(100.0, 100 * static_cast<double>(*busy) / static_cast<double>(*all));
  v["memory_used_bytes"] = now.group.memory_limit ? now.group.memory_used.value_or(now.memory_used) : now.memory_used;
  if (before.group.periods && now.group.periods && before.group.throttled && now.group.throttled) {
    const auto periods = counted_since(*before.group.periods, *now.group.periods),
               throttled = counted_since(*before.group.throttled, *now.group.throttled);
    if (periods && throttled)
      v["cpu_throttled_percent"] =
          *periods > 0 ? 100 * static_cast<double>(*throttled) / static_cast<double>(*periods) : 0;
  }
  put_rate(v, "disk_read_bytes_per_second", counted_since(before.disk_read, now.disk_read), seconds);
  put_rate(v, "disk_write_bytes_per_second", counted_since(before.disk_written, now.disk_written), seconds);
  put_rate(v, "network_in_bytes_per_second", counted_since(before.network_in, now.network_in), seconds);
  put_rate(v, "network_out_bytes_per_second", counted_since(before.network_out, now.network_out), seconds);
  put_family(v, before, now, ticks_per_second);
  return v;
}

void Summary::set_host(const HostReading& reading) {
  processors = reading.processors;
  usable_cores = reading.usable_cores();
  usable_memory = reading.usable_memory();
}

void Summary::add(const Sample& sample) {
  ++samples;
  seconds = sample.seconds;
  monitor::add(host, sample.seconds, sample.host);
  if (sample.run && sample.new_row) monitor::add(run, sample.seconds, sample.run->values);
  for (const GpuReading& reading : sample.gpus) {
    Gpu& gpu = gpu_of(*this, reading);
    monitor::add(gpu.series, sample.seconds, reading.values);
    gpu.memory_total = find(reading.values, "memory_total_bytes").value_or(gpu.memory_total);
    gpu.max_clock = find(reading.values, "sm_clock_max_mhz").value_or(gpu.max_clock);
    ++gpu.samples;
    if (has_any(reading, {"temperature", "temperature (hardware)", "power brake", "hardware slowdown"}))
      ++gpu.heat_limited;
    if (has_any(reading, {"power cap"})) ++gpu.power_limited;
  }
}

Json sample_json(const Sample& sample, double unix_time) {
  Json json{{"seconds", sample.seconds}, {"time", unix_time}, {"host", json_of(sample.host)}};
  json["gpus"] = Json::array();
  for (const GpuReading& gpu : sample.gpus) json["gpus"].push_back(gpu_json(gpu));
  json["processes"] = Json::array();
  for (const ProcessReading& p : sample.processes)
    json["processes"].push_back({{"pid", p.pid}, {"name", p.name}, {"rss_bytes", p.rss_bytes}});
  json["run"] = nullptr;
  if (sample.run) {
    json["run"] = {{"step", sample.run->step}};
    json["run"].update(json_of(sample.run->values));
  }
  return json;
}

Json summary_json(const Summary& summary) {
  Json json{{"seconds", summary.seconds},
            {"samples", summary.samples},
            {"processors", summary.processors},
            {"usable_cores", summary.usable_cores},
            {"usable_memory_bytes", summary.usable_memory},
            {"host", series_json(summary.host)},
            {"gpus", Json::array()},
            {"run", series_json(summary.run)}};
  for (const Summary::Gpu& gpu : summary.gpus) {
    Json one{{"index", gpu.index}, {"name", gpu.name}};
    one.update(series_json(gpu.series));
    one["heat_limited_samples"] = gpu.heat_limited;
    one["power_limited_samples"] = gpu.power_limited;
    json["gpus"].push_back(std::move(one));
  }
  return json;
}

}  // namespace qtrain::monitor
