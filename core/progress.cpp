#include "core/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/log.h"

namespace qtrain {
namespace {

constexpr int kLongestBar = 24, kShortestBar = 8;
constexpr auto kReportInterval = std::chrono::seconds(10);  // where there is no live line

/// A part of the line; in a narrow terminal, those of the highest rank are dropped first.
struct Part {
  int rank;
  std::string text;
};
using Parts = std::array<Part, 10>;

double share_of(const Progress& p) {
  return p.total > 0 ? std::clamp(static_cast<double>(p.step) / static_cast<double>(p.total), 0.0, 1.0) : 0;
}

std::string memory_text(double bytes) {
  constexpr double kMib = 1 << 20, kGib = 1 << 30;
  return bytes < kGib ? fmt::format("  mem {:.0f} MiB", bytes / kMib) : fmt::format("  mem {:.1f} GiB", bytes / kGib);
}

Parts parts_of(const Progress& p) {
  const bool total = p.total > 0;
  const auto number = [](const std::optional<double>& x, const char* format) {
    return x ? fmt::format(fmt::runtime(format), *x) : std::string();
  };
  const bool loss = !p.loss || std::isfinite(*p.loss);
  const int digits = p.tokens_per_second.value_or(0) < 100 ? 1 : 0;
  return {{{0, std::string(p.unit)},
           {1, !p.counted ? ""
               : total    ? fmt::format(" {}/{}", p.step, p.total)
                          : fmt::format(" {}", p.step)},
           {4, total ? fmt::format(" {:3.0f}%", std::floor(share_of(p) * 100)) : ""},
           {7, number(p.epoch, "  epoch {:.2f}")},
           {2, loss ? number(p.loss, "  loss {:.4f}") : "  loss not finite"},
           {6, number(p.learning_rate, "  lr {:.3g}")},
           {5, p.tokens_per_second ? fmt::format("  {:.{}f} tokens/s", *p.tokens_per_second, digits) : ""},
           {3, p.eta_seconds ? "  ETA " + format_duration(*p.eta_seconds) : ""},
           {8, p.memory_bytes ? memory_text(*p.memory_bytes) : ""},
           {9, p.data_wait ? fmt::format("  wait {:.0f}%", *p.data_wait * 100) : ""}}};
}

std::size_t length_of(const Parts& parts) {
  std::size_t length = 0;
  for (const Part& part : parts) length += part.text.size();
  return length;
}

std::string bar(double share, int width) {
  const int inner = width - 2, full = static_cast<int>(share * inner);
  return fmt::format("[{:#>{}}{:->{}}]", "", full, "", inner - full);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<std::int64_t>(std::min(seconds + 0.5, 9e15));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string format_progress(const Progress& p) {
  return format_progress(p, std::numeric_limits<int>::max());
}

std::string format_progress(const Progress& p, int width) {
  Parts parts = parts_of(p);
  const auto room = static_cast<std::size_t>(std::max(width, 1));
  while (length_of(parts) > room) {
    Part* least = nullptr;
    for (Part& part : parts)
      if (!part.text.empty() && (least == nullptr || part.rank > least->rank)) least = &part;
    if (least == &parts[0]) break;
    least->text.clear();
  }
  std::string line;
  for (const Part& part : parts) line += part.text;
  return line.substr(0, room);
}

std::string format_live(const Progress& p, int width) {
  std::string line = format_progress(p, width);
  const int room = width - static_cast<int>(line.size()) - 2;
  return p.total > 0 && room >= kShortestBar ? line + "  " + bar(share_of(p), std::min(room, kLongestBar)) : line;
}

ProgressBar::ProgressBar(Log& log, Job job) : log_(log), job_(std::move(job)) {
  set(0);
}

ProgressBar::~ProgressBar() {
  log_.end_live();
}

void ProgressBar::set(std::int64_t done) {
  done_ = done;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  Progress p{.step = done_, .total = job_.total, .unit = job_.unit, .counted = job_.counted};
  if (const double share = share_of(p); share > 0) p.eta_seconds = seconds / share - seconds;
  if (log_.shows_live()) return log_.live(p);
  if (now - reported_ < kReportInterval || done_ >= job_.total) return;
  reported_ = now;
  log_.info("{}", format_progress(p));
}

}  // namespace qtrain
