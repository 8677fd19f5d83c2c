#pragma once
#include <ctime>
#include <optional>
#include <string>

namespace qtrain {

/// Today's local date in the format of template_date: "2026-07-26".
std::string today();

/// Time that a chat template sees on that date: local noon. None for an invalid date.
std::optional<std::time_t> clock_on(const std::string& date);

}  // namespace qtrain
