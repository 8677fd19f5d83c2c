#include "monitor/quantities.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace qtrain::monitor {
namespace {

constexpr Quantity kHost[] = {{"cpu_percent", "CPU", Unit::percent},
                              {"process_cpu_cores", "process cores", Unit::cores},
                              {"cpu_throttled_percent", "CPU limit hit", Unit::percent},
                              {"memory_used_bytes", "memory", Unit::bytes},
                              {"process_rss_bytes", "process memory", Unit::bytes},
                              {"disk_read_bytes_per_second", "disk read", Unit::bytes_per_second},
                              {"disk_write_bytes_per_second", "disk write", Unit::bytes_per_second},
                              {"process_read_bytes_per_second", "process read", Unit::bytes_per_second},
                              {"process_write_bytes_per_second", "process write", Unit::bytes_per_second},
                              {"network_in_bytes_per_second", "network in", Unit::bytes_per_second},
                              {"network_out_bytes_per_second", "network out", Unit::bytes_per_second}};
constexpr Quantity kGpu[] = {
    {"utilization_percent", "busy", Unit::percent}, {"memory_traffic_percent", "traffic", Unit::percent},
    {"memory_used_bytes", "memory", Unit::bytes},   {"temperature_celsius", "temp", Unit::celsius},
    {"power_watts", "power", Unit::watts},          {"sm_clock_mhz", "clock", Unit::megahertz}};
constexpr Quantity kRun[] = {{"tokens_per_second", "tokens", Unit::per_second},
                             {"data_wait_percent", "data wait", Unit::percent},
                             {"loss", "loss", Unit::number}};

/// Unit prefixes and the factor between them.
struct Prefixes {
  double step;
  std::array<const char*, 6> names;
};
constexpr Prefixes kDecimal{1000, {"", "k", "M", "G", "T", "P"}}, kBinary{1024, {"", "Ki", "Mi", "Gi", "Ti", "Pi"}};

std::string scaled(double value, const Prefixes& prefixes, std::string_view end) {
  std::size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < prefixes.names.size()) {
    value /= prefixes.step;
    ++prefix;
  }
  return fmt::format("{:.{}f} {}{}", value, prefix == 0 || value >= 99.95 ? 0 : 1, prefixes.names[prefix], end);
}

}  // namespace

std::span<const Quantity> host_quantities() {
  return kHost;
}
std::span<const Quantity> gpu_quantities() {
  return kGpu;
}
std::span<const Quantity> run_quantities() {
  return kRun;
}

std::optional<double> find(const Values& values, std::string_view key) {
  const auto at = values.find(key);
  return at == values.end() ? std::nullopt : std::optional(at->second);
}

void put(Values& values, std::string_view key, std::optional<double> value) {
  if (value) values[key] = *value;
}

std::string in_unit(double value, Unit unit) {
  if (!std::isfinite(value)) return "-";
  switch (unit) {
    case Unit::percent: return fmt::format("{:.0f} %", value);
    case Unit::cores: return fmt::format("{:.2f}", value);
    case Unit::bytes: return scaled(value, kBinary, "B");
    case Unit::bytes_per_second: return scaled(value, kDecimal, "B/s");
    case Unit::celsius: return fmt::format("{:.0f} C", value);
    case Unit::watts: return fmt::format("{:.0f} W", value);
    case Unit::megahertz: return fmt::format("{:.0f} MHz", value);
    case Unit::number: return fmt::format("{:.4g}", value);
    case Unit::per_second: return fmt::format("{:.{}f}/s", value, value < 100 ? 1 : 0);
  }
  return "-";
}

void Statistics::add(double seconds, double value) {
  if (!std::isfinite(value)) return;
  if (count_ == 0) {
    first_ = least_ = most_ = value;
    origin_ = seconds;
  }
  ++count_;
  history_.add(seconds, value);
  last_ = value;
  sum_ += value;
  least_ = std::min(least_, value);
  most_ = std::max(most_, value);
  const double t = seconds - origin_;
  times_ += t;
  squares_ += t * t;
  products_ += t * (value - first_);  // relative to the first value, which may be large compared with the changes
}

double Statistics::slope() const {
  if (count_ < 3) return 0;
  const double n = static_cast<double>(count_), changes = sum_ - n * first_;
  const double spread = n * squares_ - times_ * times_;
  return spread > 0 ? (n * products_ - times_ * changes) / spread : 0;
}

const Statistics* find(const Series& series, std::string_view key) {
  const auto at = series.find(key);
  return at == series.end() || at->second.count() == 0 ? nullptr : &at->second;
}

void add(Series& series, double seconds, const Values& values) {
  for (const auto& [key, value] : values) series[key].add(seconds, value);
}

}  // namespace qtrain::monitor
