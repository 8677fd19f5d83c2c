#include "text/template/jinja/syntax_error.h"

#include "core/error.h"

namespace qtrain {

void template_syntax_error(int line, const std::string& cause) {
  fail(ErrorKind::input, {.cause = "template syntax error: " + cause, .place = std::to_string(line)});
}

}  // namespace qtrain
