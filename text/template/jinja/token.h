#pragma once
#include <cstdint>
#include <string>

#include "text/template/python/value.h"

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

}  // namespace qtrain
