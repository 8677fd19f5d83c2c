#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/formats/json.h"
#include "plan/device_speed.h"

namespace qtrain {

/// The range from the smallest to the largest value with three significant digits: "64300 to 106000"; one number if
/// they are equal.
std::string range_text(const Ranged<double>& range, std::string_view between = " to ");
/// The same with the unit prefix of the largest value: "812", "64.3-106 k", "1.9-3.02 M".
std::string amount_range_text(const Ranged<double>& range, std::string_view between = "-");
/// The same for durations, with the unit of the longest one: "1.4 to 2.2 h".
std::string duration_range_text(const Ranged<double>& seconds, std::string_view between = " to ");
/// The same for amounts of money, with two decimals.
std::string cost_range_text(const Ranged<double>& cost);

/// The usual value as a number; null if there is none.
Json usual_json(const std::optional<Ranged<double>>& range);
/// {"low": X, "high": Y}; null if there is no range.
Json range_json(const std::optional<Ranged<double>>& range);

}  // namespace qtrain
