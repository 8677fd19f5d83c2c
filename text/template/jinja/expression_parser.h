#pragma once
#include <cstdint>
#include <string_view>

#include "text/template/jinja/tokens.h"

namespace qtrain {

// Recursive descent over the operators of Jinja's expressions, including its left-associative `**`.

enum class Conditional : std::uint8_t { allowed, not_allowed };  ///< whether `a if b` may follow
ExprPtr parse_expression(TokenCursor& t, Conditional conditional = Conditional::allowed);

struct TupleRules {
  Conditional conditional = Conditional::allowed;
  std::string_view end = {};  ///< a name that ends the tuple
  bool may_be_empty = false;
};
/// One expression, or several separated by commas, which form a tuple.
ExprPtr parse_tuple(TokenCursor& t, const TupleRules& rules = {});
/// Whether a tuple ends here: at the end of the tag, a closing bracket or the name `end`.
bool at_tuple_end(const TokenCursor& t, std::string_view end);

/// Parses a chain of filters after `|`; null if there is none and `node` is null.
ExprPtr parse_filter_chain(TokenCursor& t, ExprPtr node);
/// Parses a filter and its arguments, applied to `node`, after `|` or {% filter.
ExprPtr parse_filter(TokenCursor& t, ExprPtr node);

}  // namespace qtrain
