#pragma once
#include <string>

namespace qtrain {

/// Throws a syntax error (ErrorKind::input); the parser's caller adds the template's name.
[[noreturn]] void template_syntax_error(int line, const std::string& cause);

}  // namespace qtrain
