#pragma once
#include <ctime>
#include <optional>
#include <string>

namespace qtrain {

/// The day that it is here, as template_date has it: "2026-07-26".
std::string today();

/// What the clock of a chat template shows on that day: its noon here. None if it is not a day of the calendar.
std::optional<std::time_t> clock_on(const std::string& date);

}  // namespace qtrain
