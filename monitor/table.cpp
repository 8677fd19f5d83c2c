#include "monitor/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/os/terminal.h"
#include "core/plural.h"
#include "core/progress.h"
#include "monitor/assessment.h"

namespace qtrain::monitor {
namespace {

constexpr const char* kGpuRow = "{:<4}{:>5}{:>8}{:>9}{:>6}{:>7}{:>9}  {}";
constexpr int kCell = 11, kLabel = 15, kWidestLabel = 24;
constexpr int kGap = 2, kMinBars = 16, kMaxBars = 40, kGpuBars = 12;

/// Widths of a table and, if there is room, of the bars next to it.
struct Layout {
  int label = kWidestLabel, bars = 0;
  History::Look look = {};

  explicit Layout(int columns) : label(std::clamp(columns - 4 * kCell, kLabel, kWidestLabel)) {}
  Layout(const Heading& heading, const Summary& s, int columns) : Layout(columns) {
    const int room = columns - kLabel - 4 * kCell - kGap;
    if (room < kMinBars) return;
    label = kLabel;
    bars = std::min(room, kMaxBars);
    look = {.now = s.seconds, .interval = heading.interval, .unicode = heading.unicode};
  }
  std::string head_of_bars(int width) const {
    History::Look its = look;
    its.bars = width;
    return fmt::format("{:<{}}", "last " + format_duration(History::bar_seconds(its) * width), width);
  }
  /// `full`: value of a full bar; 0 for the largest value.
  std::string bars_of(const Statistics& s, int width, double full) const {
    History::Look its = look;
    its.bars = width;
    its.full = full;
    return s.history().drawn(its);
  }
};

std::string row_of(const std::string& label, std::initializer_list<std::string> cells, const Layout& layout) {
  std::string row = fmt::format("{:<{}.{}}", label, layout.label, layout.label);
  for (const std::string& cell : cells) row += fmt::format("{:>{}}", cell, kCell);
  return row;
}

std::string statistics_row(const std::string& label, const Quantity& q, const Statistics& s, const Layout& layout) {
  const auto cell = [&](double value) { return in_unit(value, q.unit); };
  std::string row = row_of(label, {cell(s.last()), cell(s.mean()), cell(s.least()), cell(s.most())}, layout);
  if (layout.bars > 0)
    row += std::string(kGap, ' ') + layout.bars_of(s, layout.bars, q.unit == Unit::percent ? 100 : 0);
  return row;
}

std::string head_row(const char* last, const Layout& layout) {
  return row_of("", {last, "mean", "min", "max"}, layout) +
         (layout.bars > 0 ? std::string(kGap, ' ') + layout.head_of_bars(layout.bars) : "");
}

struct Group {
  std::span<const Quantity> quantities;
  const Series& series;
  std::string prefix = {};
};

void append_rows(std::vector<std::string>& lines, const Group& group, const Layout& layout) {
  for (const Quantity& q : group.quantities)
    if (const Statistics* s = find(group.series, q.key))
      lines.push_back(statistics_row(group.prefix + std::string(q.label), q, *s, layout));
}

void append(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

std::string title(const Heading& heading, const Summary& s) {
  std::string text = "qtrain monitor  " + format_duration(s.seconds);
  if (heading.duration > 0) text += " of " + format_duration(heading.duration);
  text += fmt::format(", every {:g} s", heading.interval);
  if (!heading.watched.empty()) text += ", " + heading.watched;
  return text;
}

std::string machine(const Summary& s) {
  std::string text = counted(s.processors, "processor");
  if (s.usable_cores < s.processors) text += fmt::format(" ({:.1f} usable)", s.usable_cores);
  return text + fmt::format(", {} of memory", in_unit(s.usable_memory, Unit::bytes));
}

std::string gpu_title(const Summary::Gpu& gpu) {
  return fmt::format("GPU {}: {}{}", gpu.index, gpu.name.empty() ? "unknown" : gpu.name,
                     gpu.memory_total > 0 ? ", " + in_unit(gpu.memory_total, Unit::bytes) : "");
}

std::string gpu_cell(const GpuReading& gpu, std::string_view key, Unit unit) {
  const auto value = find(gpu.values, key);
  return value ? in_unit(*value, unit) : "-";
}

const Series& series_of(const Summary& s, int gpu) {
  return std::ranges::find(s.gpus, gpu, &Summary::Gpu::index)->series;
}

// One line per GPU, for several GPUs.
std::vector<std::string> gpu_lines(const std::vector<GpuReading>& gpus, const Summary& s, const Layout& layout) {
  const auto with_bars = [&](const std::string& bars, const std::string& text) {
    return layout.bars > 0 ? fmt::format("{}  {}", bars, text) : text;
  };
  std::vector<std::string> lines{fmt::format(fmt::runtime(kGpuRow), "GPU", "busy", "traffic", "memory", "temp", "power",
                                             "clock", with_bars(layout.head_of_bars(kGpuBars), "limit"))};
  for (const GpuReading& gpu : gpus) {
    if (!gpu.problem.empty()) {
      lines.push_back(fmt::format("{:<4}{}", gpu.index, gpu.problem));
      continue;
    }
    const Statistics* busy = find(series_of(s, gpu.index), "utilization_percent");
    const std::string limits = gpu.limited_by.empty() ? "-" : fmt::format("{}", fmt::join(gpu.limited_by, ", "));
    lines.push_back(fmt::format(
        kGpuRow, gpu.index, gpu_cell(gpu, "utilization_percent", Unit::percent),
        gpu_cell(gpu, "memory_traffic_percent", Unit::percent), gpu_cell(gpu, "memory_used_bytes", Unit::bytes),
        gpu_cell(gpu, "temperature_celsius", Unit::celsius), gpu_cell(gpu, "power_watts", Unit::watts),
        gpu_cell(gpu, "sm_clock_mhz", Unit::megahertz),
        with_bars(busy ? layout.bars_of(*busy, kGpuBars, 100) : std::string(kGpuBars, ' '), limits)));
  }
  return lines;
}

std::string processes_of(const GpuReading& gpu) {
  std::string text;
  for (const GpuProcess& p : gpu.processes)
    text += fmt::format("{}{}{}", text.empty() ? "processes: " : ", ", p.pid,
                        p.bytes ? " " + in_unit(*p.bytes, Unit::bytes) : "");
  return text;
}

void append_gpus(std::vector<std::string>& lines, const Sample& now, const Summary& s, const Layout& layout) {
  if (now.gpus.size() > 1) return append(lines, gpu_lines(now.gpus, s, layout));
  for (const GpuReading& gpu : now.gpus) {
    const auto& summed = s.gpus.front();
    lines.push_back(gpu_title(summed));
    if (!gpu.problem.empty()) lines.push_back(gpu.problem);
    append_rows(lines, {gpu_quantities(), summed.series, "GPU "}, layout);
    if (!gpu.limited_by.empty()) lines.push_back(fmt::format("clock limited by {}", fmt::join(gpu.limited_by, ", ")));
    if (const std::string processes = processes_of(gpu); !processes.empty()) lines.push_back(processes);
  }
}

void append_findings(std::vector<std::string>& lines, const Summary& s, int columns) {
  for (const Finding& f : assess(s)) append(lines, wrapped(f.text, columns));
}

}  // namespace

std::vector<std::string> live_view(const Heading& heading, const Sample& now, const Summary& s, int columns) {
  const Layout layout(heading, s, columns);
  std::vector<std::string> lines = wrapped(title(heading, s), columns);
  append(lines, wrapped(machine(s) + (heading.no_gpu.empty() ? "" : "; no GPU found"), columns));
  const std::vector<Finding> findings = assess(s);
  const std::string others = findings.size() > 1 ? fmt::format(" (and {} more)", findings.size() - 1) : "";
  append(lines,
         wrapped(findings.front().text + others, columns));  // at the top, because a short terminal cuts off the bottom
  lines.push_back(head_row("now", layout));
  append_rows(lines, {host_quantities(), s.host}, layout);
  append_gpus(lines, now, s, layout);
  if (now.run) {
    lines.push_back(fmt::format("run: step {}", now.run->step));
    append_rows(lines, {run_quantities(), s.run}, layout);
  }
  for (std::string& line : lines) line.resize(first_columns(line, std::max(columns, 1)).size());
  return lines;
}

std::string summary_text(const Heading& heading, const Summary& s, int columns) {
  const Layout layout(columns);
  std::vector<std::string> lines;
  if (s.samples > 0) {
    append(lines, wrapped(fmt::format("{} in {}{}", counted(s.samples, "sample"), format_duration(s.seconds),
                                      heading.watched.empty() ? "" : ", " + heading.watched),
                          columns));
    append(lines, wrapped(machine(s), columns));
    if (!heading.no_gpu.empty()) append(lines, wrapped("no GPU: " + heading.no_gpu, columns));
    lines.push_back(head_row("last", layout));
    append_rows(lines, {host_quantities(), s.host}, layout);
    for (const Summary::Gpu& gpu : s.gpus) {
      lines.push_back(gpu_title(gpu));
      append_rows(lines, {gpu_quantities(), gpu.series, fmt::format("GPU {} ", gpu.index)}, layout);
    }
    if (!s.run.empty()) lines.emplace_back("run");
    append_rows(lines, {run_quantities(), s.run}, layout);
    lines.emplace_back();
  }
  append_findings(lines, s, columns);
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::string sample_line(const Sample& sample) {
  std::string line = fmt::format("{:.1f} s:", sample.seconds);
  const auto add = [&](std::span<const Quantity> quantities, const Values& values, const std::string& prefix) {
    for (const Quantity& q : quantities)
      if (const auto value = find(values, q.key))
        line += fmt::format("{} {}{} {}", line.ends_with(':') ? "" : ",", prefix, q.label, in_unit(*value, q.unit));
  };
  add(host_quantities(), sample.host, "");
  for (const GpuReading& gpu : sample.gpus) {
    add(gpu_quantities(), gpu.values, fmt::format("GPU {} ", gpu.index));
    if (!gpu.limited_by.empty()) line += fmt::format(" ({})", fmt::join(gpu.limited_by, ", "));
  }
  if (sample.run) {
    line += fmt::format(", step {}", sample.run->step);
    add(run_quantities(), sample.run->values, "");
  }
  return line;
}

}  // namespace qtrain::monitor
