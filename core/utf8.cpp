#include "core/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace qtrain {
namespace {

struct Range {
  std::uint32_t first, last;
};
/// Characters that a terminal interprets as commands, that reorder text, or that end a line.
constexpr std::array<Range, 5> kUnsafe{{{0x00, 0x08}, {0x0b, 0x1f}, {0x7f, 0x9f}, {0x2028, 0x202e}, {0x2066, 0x2069}}};

bool is_unsafe(std::uint32_t point) {
  return std::ranges::any_of(kUnsafe, [&](const Range& r) { return point >= r.first && point <= r.last; });
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= ' ' && c < 0x7f) || c == '\n' || c == '\t'; });
}

}  // namespace

FirstCharacter first_character(std::string_view text) {
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (text.empty()) return {};
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  const FirstCharacter none{.point = lead};
  if (length == 0 || length > text.size()) return none;
  std::uint32_t point = length == 1 ? lead : lead & (0xffu >> (length + 1));
  for (std::size_t k = 1; k < length; ++k) {
    const auto next = static_cast<unsigned char>(text[k]);
    if ((next & 0xc0) != 0x80) return none;
    point = point << 6 | (next & 0x3fu);
  }
  if (point < kLeast[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return none;
  return {point, length, true};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const FirstCharacter c = first_character(text);
    if (!c.valid) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const FirstCharacter c = first_character(text);
    out += c.valid ? text.substr(0, c.bytes) : "\xef\xbf\xbd";
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string printable(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const FirstCharacter c = first_character(text);
    if (!c.valid || (c.bytes == 1 && is_unsafe(c.point)))
      out += fmt::format("\\x{:02x}", c.point);
    else if (is_unsafe(c.point))
      out += fmt::format("\\u{:04x}", c.point);
    else
      out += text.substr(0, c.bytes);
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) c == '\n' ? void(out += "\\n") : void(out += c);
  return out;
}

}  // namespace qtrain
