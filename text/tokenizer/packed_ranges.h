#pragma once
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/unicode_tables.h"

namespace qtrain {

// Tables of characters as text, with numbers in hexadecimal. A row starts with its distance from the end of the row
// before, so that most numbers are short.

/// "41+19:Lu 7" are 0x41..0x5a of category Lu, and 0x61.
std::vector<CodePointRange> unpacked_ranges(std::string_view packed);

/// "41=1 1a=-2" are 0x41 with the value 1, and 0x5b with -2.
std::vector<std::pair<char32_t, std::int32_t>> unpacked_values(std::string_view packed);

}  // namespace qtrain
