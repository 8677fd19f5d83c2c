#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace qtrain {

/// "1 row", "2 rows"; `many` gives an irregular plural, as in "2 matrices".
inline std::string counted(std::int64_t n, std::string_view one, std::string_view many = {}) {
  return n != 1 && !many.empty() ? fmt::format("{} {}", n, many) : fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

}  // namespace qtrain
