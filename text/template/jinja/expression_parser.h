#pragma once
#include <cstdint>
#include <string_view>

#include "text/template/jinja/token_cursor.h"

namespace qtrain {

// Recursive descent over the operators of Jinja's expressions, its left-associative `**` among them.

enum class Conditional : std::uint8_t { allowed, not_allowed };  ///< whether `a if b` may follow
ExprPtr parse_expression(TokenCursor& t, Conditional conditional = Conditional::allowed);

struct TupleRules {
  Conditional conditional = Conditional::allowed;
  std::string_view end = {};  ///< a name that ends it
  bool may_be_empty = false;
};
/// One expression, or several with commas between them, which are a tuple.
ExprPtr parse_tuple(TokenCursor& t, const TupleRules& rules = {});
/// Whether nothing more of a tuple can follow: at the end of the tag, a bracket or the name that ends it.
bool at_tuple_end(const TokenCursor& t, std::string_view end);

}  // namespace qtrain
