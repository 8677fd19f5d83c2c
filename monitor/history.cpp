#include "monitor/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

namespace qtrain::monitor {
namespace {

using Levels = std::array<const char*, 8>;
constexpr Levels kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, kAscii{"_", ".", ":", "-", "=", "+", "*", "#"};

struct Mean {
  double sum = 0, count = 0;
  double value() const { return sum / count; }
};

const char* level(const Levels& levels, double value, double full) {
  const double share = full > 0 ? std::clamp(value / full, 0.0, 1.0) : 0;
  return levels.at(static_cast<std::size_t>(std::lround(share * static_cast<double>(levels.size() - 1))));
}

}  // namespace

void History::add(double seconds, double value) {
  if (!std::isfinite(value)) return;
  values_.push_back({seconds, value});
  while (values_.front().seconds < seconds - kSeconds) values_.pop_front();
}

double History::bar_seconds(const Look& look) {
  double bar = look.interval;
  while (bar * (look.bars - 1) < std::min(look.now, kSeconds)) bar *= 2;  // the newest bar is not full yet
  return bar;
}

std::string History::drawn(const Look& look) const {
  if (look.bars < 2) return {};
  const double bar = bar_seconds(look);
  const auto time_of = [&](double seconds) { return static_cast<std::int64_t>(std::floor(seconds / bar)); };
  const std::int64_t first = time_of(look.now) - look.bars + 1;
  std::vector<Mean> means(static_cast<std::size_t>(look.bars));
  std::optional<double> before;
  for (const Value& v : values_) {
    const std::int64_t at = time_of(v.seconds) - first;
    if (at < 0) before = v.value;
    if (at < 0 || at >= look.bars) continue;
    Mean& mean = means[static_cast<std::size_t>(at)];
    mean.sum += v.value;
    ++mean.count;
  }
  double full = look.full;
  if (full <= 0)
    for (const Mean& m : means)
      if (m.count > 0) full = std::max(full, m.value());
  std::string out;
  for (const Mean& m : means) {
    if (m.count > 0) before = m.value();
    out += before ? level(look.unicode ? kBlocks : kAscii, *before, full) : " ";
  }
  return out;
}

}  // namespace qtrain::monitor
