#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::e2e {

/// What a terminal shows after these bytes: its lines, without blanks behind them. Knows line ends, wrapping, going
/// up, erasing from the cursor on, and colors, which it leaves out.
std::vector<std::string> screen_after(std::string_view bytes, int columns);

}  // namespace qtrain::e2e
