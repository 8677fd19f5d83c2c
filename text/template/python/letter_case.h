#pragma once
#include <string>
#include <string_view>

namespace qtrain {

// On UTF-8, with the full case mappings of Unicode.

/// str.upper; likewise the others.
std::string py_upper(std::string_view text);
std::string py_lower(std::string_view text);
std::string py_title(std::string_view text);
std::string py_capitalize(std::string_view text);
/// str.isupper, str.islower: at least one cased letter, and all of them in this case.
bool py_is_upper(std::string_view text);
bool py_is_lower(std::string_view text);

}  // namespace qtrain
