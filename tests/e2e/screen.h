#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::e2e {

/// The lines that a terminal shows after these bytes, without trailing blanks. Supports line ends, wrapping, moving up,
/// erasing from the cursor on, and colors, which are ignored.
std::vector<std::string> screen_after(std::string_view bytes, int columns);

}  // namespace qtrain::e2e
