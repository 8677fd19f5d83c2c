#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qtrain {

/// Whether `pattern`, a regular expression as PEFT takes it in target_modules and rank_pattern, matches all of
/// `module`. An invalid pattern and one that needs too many steps are usage errors that quote it.
bool matches_whole(const std::string& pattern, std::string_view module);
/// The number that the group `idx` of a pattern matches, where the pattern matches the beginning of `module`. Errors as
/// above.
std::optional<std::int64_t> number_in(const std::string& pattern, std::string_view module);

}  // namespace qtrain
