#include "text/template/date.h"

#include <fmt/format.h>

#include <cstdio>

namespace qtrain {
namespace {

std::string written(const std::tm& day) {
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

}  // namespace

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return written(local);
}

std::optional<std::time_t> clock_on(const std::string& date) {
  std::tm day{};
  day.tm_hour = 12;
  day.tm_isdst = -1;
  const bool read = std::sscanf(date.c_str(), "%4d-%2d-%2d", &day.tm_year, &day.tm_mon, &day.tm_mday) == 3;
  day.tm_year -= 1900;
  day.tm_mon -= 1;
  if (!read) return std::nullopt;
  const std::time_t noon = std::mktime(&day);  // normalizes dates that are not in the calendar
  return written(day) == date ? std::optional(noon) : std::nullopt;
}

}  // namespace qtrain
