#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/python/work.h"

namespace qtrain {

// Methods of str on UTF-8.

/// Where the first (last) `wanted` begins, in time that grows with the sum of the sizes; npos if it is not there.
std::size_t py_find(PyWork& work, std::string_view text, std::string_view wanted);
std::size_t py_rfind(PyWork& work, std::string_view text, std::string_view wanted);
/// How often it is there, without overlap.
int py_count(PyWork& work, std::string_view text, std::string_view wanted);

enum class Ends : std::uint8_t { left, right, both };
/// str.strip, lstrip, rstrip; without `chars` whitespace.
std::string_view py_strip(std::string_view text, Ends ends = Ends::both,
                          std::optional<std::string_view> chars = std::nullopt);

/// str.split on whitespace, str.split(sep), from the left or the right; a negative limit is none.
std::vector<std::string> py_split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit);
std::vector<std::string> py_rsplit(std::string_view text, std::optional<std::string_view> separator,
                                   std::int64_t limit);
enum class LineEnds : std::uint8_t { drop, keep };
std::vector<std::string> py_splitlines(std::string_view text, LineEnds ends = LineEnds::drop);

/// str.replace; a negative count is all.
std::string py_replace(PyWork& work, std::string_view text, std::string_view old, std::string_view fresh,
                       std::int64_t count = -1);

}  // namespace qtrain
