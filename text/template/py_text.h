#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/py_value.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {

// Text as Python sees it: a string is a sequence of code points, held here as UTF-8.

/// Decodes one code point at `pos` and moves past it; a stray byte stands for itself.
char32_t next_code_point(std::string_view text, std::size_t& pos);
void append_code_point(std::string& text, char32_t c);
std::u32string code_points(std::string_view text);
std::string to_utf8(std::u32string_view points);
/// len(str)
std::size_t count_code_points(std::string_view text);
/// Byte offset of the code point with this index (the length of the text for the one behind the last).
std::size_t byte_offset(std::string_view text, std::size_t index);

/// str.isspace of one character.
bool is_py_space(char32_t c);
bool is_py_digit(char32_t c);    ///< str.isdigit
bool is_py_decimal(char32_t c);  ///< str.isdecimal
bool is_py_alpha(char32_t c);
bool is_py_upper(char32_t c);
bool is_py_lower(char32_t c);
/// \w of a regular expression, and what an identifier may have.
bool is_py_word(char32_t c);

enum class Ends : std::uint8_t { left, right, both };
/// str.strip, lstrip, rstrip; without `chars` whitespace.
std::string_view py_strip(std::string_view text, Ends ends = Ends::both,
                          std::optional<std::string_view> chars = std::nullopt);

std::string py_upper(std::string_view text);
std::string py_lower(std::string_view text);
std::string py_title(std::string_view text);
std::string py_capitalize(std::string_view text);
/// str.isupper, str.islower: at least one letter with a case, and all of them this one.
bool py_is_upper(std::string_view text);
bool py_is_lower(std::string_view text);

/// str.split on whitespace, str.split(sep), from the left or the right; a negative limit is none.
std::vector<std::string> py_split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit);
std::vector<std::string> py_rsplit(std::string_view text, std::optional<std::string_view> separator,
                                   std::int64_t limit);
enum class LineEnds : std::uint8_t { drop, keep };
std::vector<std::string> py_splitlines(std::string_view text, LineEnds ends = LineEnds::drop);

/// str.replace; a negative count is all.
std::string py_replace(PyWork& work, std::string_view text, std::string_view old, std::string_view fresh,
                       std::int64_t count = -1);

/// repr of a string.
std::string py_quote(std::string_view text);
/// repr of a float.
std::string py_real_text(double value);
/// str of an int.
std::string py_int_text(PyInt value);
/// repr(value) and str(value); a text longer than permitted is an error.
std::string py_repr(PyWork& work, const PyValue& value);
std::string py_str(PyWork& work, const PyValue& value);

struct DumpOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent = {};  ///< text of one level
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
/// json.dumps. TypeErrors for what JSON has no form for.
std::string py_json_dumps(PyWork& work, const PyValue& value, const DumpOptions& options);

/// int(text, base) and float(text); none where Python raises a ValueError.
std::optional<PyInt> py_parse_int(std::string_view text, int base = 10);
std::optional<double> py_parse_real(std::string_view text);

/// markupsafe.escape of a text.
std::string html_escape(std::string_view text);

}  // namespace qtrain
