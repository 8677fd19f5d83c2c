#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// markupsafe.escape for a text.
std::string html_escape(std::string_view text);

}  // namespace qtrain
