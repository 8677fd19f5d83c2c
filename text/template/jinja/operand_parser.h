#pragma once
#include "text/template/jinja/token_cursor.h"

namespace qtrain {

/// What operators of two sides stand between: signs before it, then a name, literal or brackets with calls, items and
/// attributes behind it, then filters and tests.
ExprPtr parse_operand(TokenCursor& t);
/// Filters behind `|` one after the other; null if there is none and `node` is null.
ExprPtr parse_filter_chain(TokenCursor& t, ExprPtr node);
/// A filter and its arguments on `node`, behind `|` or {% filter.
ExprPtr parse_filter(TokenCursor& t, ExprPtr node);

}  // namespace qtrain
