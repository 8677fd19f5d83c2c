#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// The value of a string literal, given the text between its quotes. Throws a syntax error.
std::string unescape_literal(std::string_view inside, int line);
/// The length of the number literal at the start of `text`, 0 if there is none; stores its value in `value`. Throws a
/// syntax error.
std::size_t lex_number(std::string_view text, int line, PyValue& value);

}  // namespace qtrain
