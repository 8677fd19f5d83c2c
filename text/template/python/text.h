#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/python/work.h"

namespace qtrain {

// str methods on UTF-8.

/// Byte offset of the first (last) occurrence of `wanted`, or npos; linear in the total size.
std::size_t py_find(PyWork& work, std::string_view text, std::string_view wanted);
std::size_t py_rfind(PyWork& work, std::string_view text, std::string_view wanted);
/// Number of non-overlapping occurrences.
int py_count(PyWork& work, std::string_view text, std::string_view wanted);

enum class Ends : std::uint8_t { left, right, both };
/// str.strip, lstrip, rstrip; strips whitespace without `chars`.
std::string_view py_strip(std::string_view text, Ends ends = Ends::both,
                          std::optional<std::string_view> chars = std::nullopt);

/// str.split on whitespace, or str.split(sep), from the left or the right; a negative limit means unlimited.
std::vector<std::string> py_split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit);
std::vector<std::string> py_rsplit(std::string_view text, std::optional<std::string_view> separator,
                                   std::int64_t limit);
enum class LineEnds : std::uint8_t { drop, keep };
std::vector<std::string> py_splitlines(std::string_view text, LineEnds ends = LineEnds::drop);

/// str.replace; a negative count means all.
std::string py_replace(PyWork& work, std::string_view text, std::string_view old, std::string_view fresh,
                       std::int64_t count = -1);

/// markupsafe.escape for a text.
std::string html_escape(std::string_view text);

}  // namespace qtrain
