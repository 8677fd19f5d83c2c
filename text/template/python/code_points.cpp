#include "text/template/python/code_points.h"

#include <utf8proc.h>

#include <algorithm>

namespace qtrain {

char32_t next_code_point(std::string_view text, std::size_t& pos) {
  const auto first = static_cast<unsigned char>(text[pos]);
  if (first < 0x80) return text[pos++] & 0x7f;
  utf8proc_int32_t c = -1;
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + pos);
  const auto used = utf8proc_iterate(at, static_cast<utf8proc_ssize_t>(text.size() - pos), &c);
  pos += used > 0 ? static_cast<std::size_t>(used) : 1;
  return used > 0 ? static_cast<char32_t>(c) : first;
}

void append_code_point(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) points += next_code_point(text, pos);
  return points;
}

std::string to_utf8(std::u32string_view points) {
  std::string text;
  text.reserve(points.size());
  for (const char32_t c : points) append_code_point(text, c);
  return text;
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t pos = 0;
  while (index-- > 0 && pos < text.size()) next_code_point(text, pos);
  return pos;
}

}  // namespace qtrain
