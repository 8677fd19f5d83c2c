#include "text/tokenizer/packed_ranges.h"

#include <charconv>

namespace qtrain {
namespace {

/// Takes a number off the front of a text that the build contains.
std::int32_t take_number(std::string_view& text) {
  std::int32_t value = 0;
  const char* end = std::from_chars(text.data(), text.data() + text.size(), value, 16).ptr;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char mark) {
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(1);
  return true;
}

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace

std::vector<CodePointRange> unpacked_ranges(std::string_view packed) {
  std::vector<CodePointRange> rows;
  for (char32_t last = 0; !packed.empty(); take(packed, ' ')) {
    const char32_t first = last + static_cast<char32_t>(take_number(packed));
    last = first + (take(packed, '+') ? static_cast<char32_t>(take_number(packed)) : 0);
    rows.push_back({.first = first, .last = last});
    if (take(packed, ':')) rows.back().category = take_word(packed);
  }
  return rows;
}

std::vector<std::pair<char32_t, std::int32_t>> unpacked_values(std::string_view packed) {
  std::vector<std::pair<char32_t, std::int32_t>> rows;
  for (char32_t at = 0; !packed.empty(); take(packed, ' ')) {
    at += static_cast<char32_t>(take_number(packed));
    take(packed, '=');
    rows.emplace_back(at, take_number(packed));
  }
  return rows;
}

}  // namespace qtrain
