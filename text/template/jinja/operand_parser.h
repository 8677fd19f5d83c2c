#pragma once
#include "text/template/jinja/token_cursor.h"

namespace qtrain {

/// Parses an operand of a binary operator: signs, then a name, literal or bracket with calls, items and attributes,
/// then filters and tests.
ExprPtr parse_operand(TokenCursor& t);
/// Parses a chain of filters after `|`; null if there is none and `node` is null.
ExprPtr parse_filter_chain(TokenCursor& t, ExprPtr node);
/// Parses a filter and its arguments, applied to `node`, after `|` or {% filter.
ExprPtr parse_filter(TokenCursor& t, ExprPtr node);

}  // namespace qtrain
