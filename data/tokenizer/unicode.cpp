#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace qtrain {
namespace {

struct Lead {
  int size;
  unsigned char low, high;  // range of the second byte
};

// Table 3-7 of the Unicode standard: well-formed UTF-8.
Lead lead_of(unsigned char b) {
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// How many bytes from `at` belong to the longest beginning of a character; `whole` when it is complete.
std::size_t prefix_size(std::string_view s, std::size_t at, bool& whole) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  whole = byte(at) < 0x80;
  if (whole) return 1;
  const Lead lead = lead_of(byte(at));
  if (lead.size == 0) return 1;
  std::size_t n = 1;
  for (; n < static_cast<std::size_t>(lead.size) && at + n < s.size(); ++n) {
    const unsigned char low = n == 1 ? lead.low : 0x80, high = n == 1 ? lead.high : 0xBF;
    if (byte(at + n) < low || byte(at + n) > high) return n;
  }
  whole = n == static_cast<std::size_t>(lead.size);
  return n;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

Utf8Char utf8_at(std::string_view s, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(s[at + i])); };
  if (byte(0) < 0x80) return {byte(0), 1, true};
  bool whole = false;
  const std::size_t n = prefix_size(s, at, whole);
  if (!whole) return {0xFFFD, 1, false};
  if (n == 2) return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2, true};
  if (n == 3) return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3, true};
  return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4, true};
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t v) { out += static_cast<char>(v); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    bool whole = false;
    const std::size_t n = prefix_size(bytes, i, whole);
    if (whole) out.append(bytes.substr(i, n));
    else out += "\xEF\xBF\xBD";
    i += n;
  }
  return out;
}

std::size_t unfinished_bytes(std::string_view bytes) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, bytes.size()); ++back) {
    const std::size_t at = bytes.size() - back;
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) continue;
    bool whole = false;
    const std::size_t n = prefix_size(bytes, at, whole);
    return !whole && n == back && lead_of(static_cast<unsigned char>(bytes[at])).size > 0 ? back : 0;
  }
  return 0;
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word_char(char32_t c) {
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_ND) || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_PC ||
         c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9);
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

// GPT-2 shows printable Latin-1 bytes as they are and the other 68 as U+0100 + their number.
char32_t printable_of_byte(unsigned char b) {
  const auto printable = [](int v) { return (v >= 33 && v <= 126) || (v >= 161 && v <= 172) || (v >= 174 && v <= 255); };
  if (printable(b)) return b;
  char32_t n = 0;
  for (int v = 0; v < b; ++v) n += printable(v) ? 0 : 1;
  return 0x100 + n;
}

int byte_of_printable(char32_t c) {
  if (c < 0x100) return printable_of_byte(static_cast<unsigned char>(c)) == c ? static_cast<int>(c) : -1;
  if (c >= 0x100 + 68) return -1;
  for (int b = 0; b < 256; ++b)
    if (printable_of_byte(static_cast<unsigned char>(b)) == c) return b;
  return -1;
}

}  // namespace qtrain
