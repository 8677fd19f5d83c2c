#pragma once
#include <string>
#include <string_view>

namespace qtrain {

// Of UTF-8, by the full case mappings of Unicode.

/// str.upper, and the others by their names.
std::string py_upper(std::string_view text);
std::string py_lower(std::string_view text);
std::string py_title(std::string_view text);
std::string py_capitalize(std::string_view text);
/// str.isupper, str.islower: at least one letter with a case, and all of them this one.
bool py_is_upper(std::string_view text);
bool py_is_lower(std::string_view text);

}  // namespace qtrain
