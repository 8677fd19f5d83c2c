#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/py_value.h"

namespace qtrain {

enum class TokenKind : std::uint8_t {
  data,            ///< text outside of tags
  variable_begin,  ///< {{
  variable_end,
  block_begin,  ///< {%
  block_end,
  name,
  string,
  number,
  symbol,  ///< an operator or bracket, in `text`
  end,
};

struct TemplateToken {
  TokenKind kind = TokenKind::end;
  std::string text;  ///< text, name, symbol, or the string with its escapes resolved
  PyValue number;
  int line = 0;
};

/// Throws a syntax error; the caller of the parser adds the template's name.
[[noreturn]] void template_syntax_error(int line, const std::string& cause);

/// Cuts a template into tokens, with Jinja's whitespace rules for trim_blocks and lstrip_blocks. The last token is
/// `end`. Errors (ErrorKind::input), with the line as place.
std::vector<TemplateToken> lex_template(std::string_view source);

/// The value of a string literal's inside.
std::string unescape_literal(std::string_view inside, int line);
/// The length of the number literal at the front of `text`, 0 if there is none; its value goes to `value`.
std::size_t lex_number(std::string_view text, int line, PyValue& value);

}  // namespace qtrain
