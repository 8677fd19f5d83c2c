#pragma once
#include <string_view>

#include "text/template/jinja/ast.h"

namespace qtrain {

/// Throws ErrorKind::input for a syntax error, with its line as place.
ParsedTemplate parse_template(std::string_view source);

}  // namespace qtrain
