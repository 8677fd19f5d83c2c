#include "text/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "text/tokenizer/unicode_tables.h"

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

// Number of bytes from `at` in the longest prefix of a character; sets `whole` if it is complete.
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

bool between(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

const CodePointRange* find_range(const std::vector<CodePointRange>& ranges, char32_t c) {
  const auto it = std::lower_bound(ranges.begin(), ranges.end(), c,
                                   [](const CodePointRange& r, char32_t value) { return r.last < value; });
  return it != ranges.end() && it->first <= c ? &*it : nullptr;
}

// GPT-2 shows printable Latin-1 bytes as themselves and the other 68 as U+0100 + their index.
constexpr std::array<char16_t, 256> kPrintable = [] {
  std::array<char16_t, 256> table{};
  char16_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    table[static_cast<std::size_t>(b)] = printable ? static_cast<char16_t>(b) : next++;
  }
  return table;
}();
constexpr std::array<std::int16_t, 0x144> kByteOfPrintable = [] {
  std::array<std::int16_t, 0x144> table{};
  table.fill(-1);
  for (std::size_t b = 0; b < 256; ++b) table[kPrintable[b]] = static_cast<std::int16_t>(b);
  return table;
}();

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

std::size_t broken_size(std::string_view text, std::size_t at) {
  bool whole = false;
  return prefix_size(text, at, whole);
}

bool is_ascii(std::string_view s) {
  std::size_t i = 0;
  for (std::uint64_t word; i + 8 <= s.size(); i += 8) {
    std::memcpy(&word, s.data() + i, 8);
    if (word & 0x8080808080808080u) return false;
  }
  for (; i < s.size(); ++i)
    if (static_cast<unsigned char>(s[i]) >= 0x80) return false;
  return true;
}

bool is_utf8(std::string_view s) {
  for (std::size_t i = 0; i < s.size();) {
    if (is_ascii(s.substr(i, 32))) {
      i += 32;
      continue;
    }
    for (const std::size_t stop = std::min(i + 32, s.size()); i < stop;) {
      bool whole = false;
      i += prefix_size(s, i, whole);
      if (!whole) return false;
    }
  }
  return true;
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    bool whole = false;
    const std::size_t n = prefix_size(bytes, i, whole);
    if (whole)
      out.append(bytes.substr(i, n));
    else
      out += "\xEF\xBF\xBD";
    i += n;
  }
  return out;
}

int general_category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word_char(char32_t c) {
  if (c < 0x80) return between(c, 'a', 'z') || between(c, 'A', 'Z') || between(c, '0', '9') || c == '_';
  const auto k = general_category(c);
  if ((k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_ND) || k == UTF8PROC_CATEGORY_NL ||
      k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || between(c, 0x24B6, 0x24E9) ||
      between(c, 0x1F130, 0x1F149) || between(c, 0x1F150, 0x1F169) || between(c, 0x1F170, 0x1F189))
    return true;
  const CodePointRange* r = find_range(characters_since_unicode_14(), c);
  return r && (r->category.front() == 'L' || r->category == "M" || r->category == "Nd");
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return between(c, '0', '9');
  const auto k = general_category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO ||
         find_range(numeric_since_unicode_14(), c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return between(c, 33, 47) || between(c, 58, 64) || between(c, 91, 96) || between(c, 123, 126);
  const auto k = general_category(c);
  if (k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO) return !find_range(not_yet_punctuation(), c);
  return find_range(once_punctuation(), c);
}

bool known_to_normal_forms(char32_t c) {
  return find_range(normal_form_characters(), c);
}

bool is_accent(char32_t c) {
  return find_range(accent_characters(), c);
}

int script_of(char32_t c) {
  const auto& runs = script_runs();
  const auto behind =
      std::upper_bound(runs.begin(), runs.end(), c, [](char32_t value, const auto& run) { return value < run.first; });
  return std::prev(behind)->second;
}

char32_t printable_of_byte(unsigned char byte) {
  return kPrintable[byte];
}

int byte_of_printable(char32_t c) {
  return c < kByteOfPrintable.size() ? kByteOfPrintable[c] : -1;
}

bool raw_bytes(std::string_view printable, std::string& out) {
  const std::size_t before = out.size();
  for (std::size_t i = 0; i < printable.size();) {
    const Utf8Char c = utf8_at(printable, i);
    const int byte = byte_of_printable(c.value);
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(byte);
    i += c.size;
  }
  return true;
}

}  // namespace qtrain
