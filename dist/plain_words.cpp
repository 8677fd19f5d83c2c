#include "dist/plain_words.h"

#include <array>
#include <cstdint>

namespace qtrain {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD", kCut = "...";

struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;  ///< 0 if it is not a valid character
};

// The first character of UTF-8 (RFC 3629): no overlong form, no surrogate, nothing above U+10FFFF.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const std::size_t n = byte(0) >> 5 == 6 ? 2 : byte(0) >> 4 == 14 ? 3 : byte(0) >> 3 == 30 ? 4 : 0;
  if (n == 0 || text.size() < n) return {};
  char32_t code = byte(0) & (0x7FU >> n);
  for (std::size_t i = 1; i < n; ++i) {
    if (byte(i) >> 6 != 2) return {};
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool valid = code >= kLeast[n] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  return valid ? Character{code, n} : Character{};
}

bool is_plain(char32_t c) {
  const bool control = (c < 0x20 && c != '\t') || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029;
  const bool direction = c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  return !control && !direction;
}

}  // namespace

std::string plain_words(std::string_view text, std::size_t max_bytes) {
  std::string words;
  while (!text.empty()) {
    const Character c = first_of(text);
    const std::string_view next = c.bytes > 0 && is_plain(c.code) ? text.substr(0, c.bytes) : kReplacement;
    if (words.size() + next.size() > max_bytes) return words + std::string(kCut);
    words += next;
    text.remove_prefix(c.bytes > 0 ? c.bytes : 1);
  }
  return words;
}

}  // namespace qtrain
