#pragma once
#include <string_view>
#include <vector>

#include "text/template/jinja/tokens.h"

namespace qtrain {

/// Splits a template into tokens, with Jinja's whitespace rules for trim_blocks and lstrip_blocks. The last token is
/// `end`. Throws ErrorKind::input with the line as place.
std::vector<TemplateToken> lex_template(std::string_view source);

}  // namespace qtrain
