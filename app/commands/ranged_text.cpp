#include "app/commands/ranged_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace qtrain {
namespace {

constexpr double kRounded = 999.5;  // rounds up to 1000 with three digits

double least(const Ranged<double>& range) {
  return std::min(range.slow, range.fast);
}

double greatest(const Ranged<double>& range) {
  return std::max(range.slow, range.fast);
}

/// Three significant digits, never with an exponent: "0.052", "812", "64300".
std::string three_digits(double x) {
  if (!(x >= kRounded) || !std::isfinite(x)) return fmt::format("{:.3g}", x);
  const double unit = std::pow(10, std::floor(std::log10(x)) - 2);
  return fmt::format("{:.0f}", std::round(x / unit) * unit);
}

std::string joined(const std::string& low, const std::string& high, std::string_view between) {
  return low == high ? low : fmt::format("{}{}{}", low, between, high);
}

}  // namespace

std::string range_text(const Ranged<double>& range, std::string_view between) {
  return joined(three_digits(least(range)), three_digits(greatest(range)), between);
}

std::string amount_range_text(const Ranged<double>& range, std::string_view between) {
  constexpr double kThousand = 1e3;
  double unit = 1;
  std::string_view name;
  for (const std::string_view next : {" k", " M", " G"}) {
    if (greatest(range) < kRounded * unit) break;
    unit *= kThousand;
    name = next;
  }
  return range_text(range.map([&](double n) { return n / unit; }), between) + std::string(name);
}

std::string duration_range_text(const Ranged<double>& seconds, std::string_view between) {
  constexpr double kMilli = 1e-3, kMinute = 60, kHour = 3600, kDay = 86400;
  struct Unit {
    double from, seconds;
    std::string_view name;
  };
  constexpr std::array kUnits{Unit{2 * kDay, kDay, "days"}, Unit{2 * kHour, kHour, "h"},
                              Unit{2 * kMinute, kMinute, "min"}, Unit{1, 1, "s"}};
  Unit unit{0, kMilli, "ms"};
  for (const Unit& u : kUnits)
    if (greatest(seconds) >= u.from && u.seconds > unit.seconds) unit = u;
  const auto text = [&](double s) { return three_digits(s / unit.seconds); };
  return fmt::format("{} {}", joined(text(least(seconds)), text(greatest(seconds)), between), unit.name);
}

std::string cost_range_text(const Ranged<double>& cost) {
  return joined(fmt::format("{:.2f}", least(cost)), fmt::format("{:.2f}", greatest(cost)), " to ");
}

Json usual_json(const std::optional<Ranged<double>>& range) {
  return range ? Json(range->usual) : Json();
}

Json range_json(const std::optional<Ranged<double>>& range) {
  return range ? Json{{"low", least(*range)}, {"high", greatest(*range)}} : Json();
}

}  // namespace qtrain
