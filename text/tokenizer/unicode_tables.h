#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace qtrain {

/// Characters first..last, ascending; `category` only where the table has it.
struct CodePointRange {
  char32_t first, last;
  std::string_view category = {};
};

// Where the tokenizers library's idea of Unicode differs from what PCRE2 and utf8proc of any version from Unicode 14 on
// say. Written by make_unicode_tables.py.
const std::vector<CodePointRange>& characters_since_unicode_14();
const std::vector<CodePointRange>& han_characters();
const std::vector<CodePointRange>& numeric_since_unicode_14();
const std::vector<CodePointRange>& not_yet_punctuation();
const std::vector<CodePointRange>& once_punctuation();
const std::vector<CodePointRange>& normal_form_characters();
const std::vector<CodePointRange>& accent_characters();
/// First character and number of a run of one script; 0: of none.
const std::vector<std::pair<char32_t, std::uint8_t>>& script_runs();
/// Character and distance to its lowercase.
const std::vector<std::pair<char32_t, std::int32_t>>& lowercase_since_unicode_14();

}  // namespace qtrain
