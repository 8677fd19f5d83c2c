#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qtrain {

/// Whether `pattern`, a regular expression as PEFT accepts it in target_modules and rank_pattern, matches all of
/// `module`. Throws a usage error that quotes the pattern if it is invalid or takes too many steps.
bool matches_whole(const std::string& pattern, std::string_view module);
/// The number in the named group `idx`, if the pattern matches the beginning of `module`. Throws as matches_whole does.
std::optional<std::int64_t> number_in(const std::string& pattern, std::string_view module);

}  // namespace qtrain
