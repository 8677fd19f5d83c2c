#include "text/template/jinja/expression_parser.h"

#include <algorithm>
#include <array>

#include "text/template/jinja/operand_parser.h"

namespace qtrain {
namespace {

struct Operator {
  std::string_view symbol;
  PyOp op;
};

// From the highest to the lowest precedence.

ExprPtr parse_power(TokenCursor& t) {
  ExprPtr left = parse_operand(t);
  for (; t.at_symbol("**"); t.require_shallow(*left)) {
    const int line = t.take().line;
    left = make_expr(ExprKind::binary, line, std::move(left), parse_operand(t));
    left->op = PyOp::pow;
  }
  return left;
}

ExprPtr parse_product(TokenCursor& t) {
  static constexpr std::array<Operator, 4> operators = {
      {{"*", PyOp::mul}, {"/", PyOp::div}, {"//", PyOp::floor_div}, {"%", PyOp::mod}}};
  ExprPtr left = parse_power(t);
  for (;; t.require_shallow(*left)) {
    const auto found =
        std::find_if(operators.begin(), operators.end(), [&](const Operator& o) { return t.at_symbol(o.symbol); });
    if (found == operators.end()) return left;
    const int line = t.take().line;
    left = make_expr(ExprKind::binary, line, std::move(left), parse_power(t));
    left->op = found->op;
  }
}

ExprPtr parse_concat(TokenCursor& t) {
  const int line = t.line();
  ExprPtr first = parse_product(t);
  if (!t.at_symbol("~")) return first;
  ExprPtr e = make_expr(ExprKind::concat, line, std::move(first));
  while (t.skip_symbol("~")) e->add(parse_product(t));
  return e;
}

ExprPtr parse_sum(TokenCursor& t) {
  ExprPtr left = parse_concat(t);
  for (; t.at_symbol("+") || t.at_symbol("-"); t.require_shallow(*left)) {
    const TemplateToken token = t.take();
    left = make_expr(ExprKind::binary, token.line, std::move(left), parse_concat(t));
    left->op = token.text == "+" ? PyOp::add : PyOp::sub;
  }
  return left;
}

bool parse_compare_operator(TokenCursor& t, std::vector<PyCompare>& compares) {
  static constexpr std::array<std::pair<std::string_view, PyCompare>, 6> symbols = {{{"==", PyCompare::eq},
                                                                                     {"!=", PyCompare::ne},
                                                                                     {"<", PyCompare::lt},
                                                                                     {"<=", PyCompare::le},
                                                                                     {">", PyCompare::gt},
                                                                                     {">=", PyCompare::ge}}};
  for (const auto& [symbol, compare] : symbols)
    if (t.skip_symbol(symbol)) {
      compares.push_back(compare);
      return true;
    }
  if (t.skip_name("in")) {
    compares.push_back(PyCompare::in);
    return true;
  }
  if (!t.at_name("not") || t.ahead().kind != TokenKind::name || t.ahead().text != "in") return false;
  t.take();
  t.take();
  compares.push_back(PyCompare::not_in);
  return true;
}

ExprPtr parse_compare(TokenCursor& t) {
  const int line = t.line();
  ExprPtr first = parse_sum(t);
  std::vector<PyCompare> compares;
  std::vector<ExprPtr> others;
  while (parse_compare_operator(t, compares)) others.push_back(parse_sum(t));
  if (compares.empty()) return first;
  ExprPtr e = make_expr(ExprKind::compare, line, std::move(first));
  e->compares = std::move(compares);
  for (ExprPtr& other : others) e->add(std::move(other));
  return e;
}

ExprPtr parse_not(TokenCursor& t) {
  if (!t.at_name("not")) return parse_compare(t);
  const TokenCursor::Level level(t);
  const int line = t.take().line;
  return make_expr(ExprKind::logical_not, line, parse_not(t));
}

ExprPtr parse_and(TokenCursor& t) {
  ExprPtr left = parse_not(t);
  for (; t.at_name("and"); t.require_shallow(*left)) {
    const int line = t.take().line;
    left = make_expr(ExprKind::logical_and, line, std::move(left), parse_not(t));
  }
  return left;
}

ExprPtr parse_or(TokenCursor& t) {
  ExprPtr left = parse_and(t);
  for (; t.at_name("or"); t.require_shallow(*left)) {
    const int line = t.take().line;
    left = make_expr(ExprKind::logical_or, line, std::move(left), parse_and(t));
  }
  return left;
}

ExprPtr parse_conditional(TokenCursor& t) {
  ExprPtr then = parse_or(t);
  for (; t.at_name("if"); t.require_shallow(*then)) {
    const int line = t.take().line;
    ExprPtr e = make_expr(ExprKind::conditional, line, parse_or(t), std::move(then));
    if (t.skip_name("else")) {
      const TokenCursor::Level level(t);
      e->add(parse_conditional(t));
    }
    then = std::move(e);
  }
  return then;
}

}  // namespace

ExprPtr parse_expression(TokenCursor& t, Conditional conditional) {
  const TokenCursor::Level level(t);
  ExprPtr e = conditional == Conditional::allowed ? parse_conditional(t) : parse_or(t);
  t.require_shallow(*e);
  return e;
}

bool at_tuple_end(const TokenCursor& t, std::string_view end) {
  return t.at(TokenKind::variable_end) || t.at(TokenKind::block_end) || t.at_symbol(")") || t.at_name(end);
}

ExprPtr parse_tuple(TokenCursor& t, const TupleRules& rules) {
  ExprPtr tuple = make_expr(ExprKind::tuple, t.line());
  bool commas = false;
  while (!at_tuple_end(t, rules.end)) {
    tuple->add(parse_expression(t, rules.conditional));
    if (!t.skip_symbol(",")) break;
    commas = true;
  }
  if (commas) return tuple;
  if (!tuple->children.empty()) return std::move(tuple->children[0]);
  if (!rules.may_be_empty) t.unexpected("an expression");
  return tuple;
}

}  // namespace qtrain
