#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace qtrain {

// A Python string is a sequence of code points; here it is stored as UTF-8.

/// Decodes the code point at `pos` and advances `pos`; a stray byte stands for itself.
char32_t next_code_point(std::string_view text, std::size_t& pos);
void append_code_point(std::string& text, char32_t c);
std::u32string code_points(std::string_view text);
std::string to_utf8(std::u32string_view points);
/// len(str)
std::size_t count_code_points(std::string_view text);
/// Byte offset of the code point with this index (the text's length for the index past the end).
std::size_t byte_offset(std::string_view text, std::size_t index);

}  // namespace qtrain
