#include "text/template/jinja/expression_parser.h"

#include <algorithm>
#include <array>

namespace qtrain {
namespace {

ExprPtr constant(int line, PyValue value) {
  auto e = std::make_unique<TemplateExpr>();
  e->line = line;
  e->value = std::move(value);
  return e;
}

ExprPtr parse_name(TokenCursor& t) {
  const TemplateToken token = t.take();
  const std::string& word = token.text;
  if (word == "true" || word == "True") return constant(token.line, true);
  if (word == "false" || word == "False") return constant(token.line, false);
  if (word == "none" || word == "None") return constant(token.line, {});
  ExprPtr e = make_expr(ExprKind::name, token.line);
  e->name = word;
  t.read.caller |= word == "caller";
  t.read.varargs |= word == "varargs";
  t.read.kwargs |= word == "kwargs";
  return e;
}

ExprPtr parse_string(TokenCursor& t) {
  const int line = t.line();
  std::string text;
  while (t.at(TokenKind::string)) text += t.take().text;  // adjacent strings are concatenated
  return constant(line, std::move(text));
}

ExprPtr parse_list(TokenCursor& t) {
  ExprPtr e = make_expr(ExprKind::list, t.take().line);
  while (!t.at_symbol("]")) {
    if (!e->children.empty()) t.expect_symbol(",");
    if (t.at_symbol("]")) break;
    e->add(parse_expression(t));
  }
  t.expect_symbol("]");
  return e;
}

ExprPtr parse_dict(TokenCursor& t) {
  ExprPtr e = make_expr(ExprKind::dict, t.take().line);
  while (!t.at_symbol("}")) {
    if (!e->children.empty()) t.expect_symbol(",");
    if (t.at_symbol("}")) break;
    e->add(parse_expression(t));
    t.expect_symbol(":");
    e->add(parse_expression(t));
  }
  t.expect_symbol("}");
  return e;
}

ExprPtr parse_primary(TokenCursor& t) {
  const TemplateToken& token = t.current();
  if (token.kind == TokenKind::name) return parse_name(t);
  if (token.kind == TokenKind::string) return parse_string(t);
  if (token.kind == TokenKind::number) {
    const TemplateToken number = t.take();
    return constant(number.line, number.number);
  }
  if (t.at_symbol("[")) return parse_list(t);
  if (t.at_symbol("{")) return parse_dict(t);
  if (!t.skip_symbol("(")) t.unexpected("an expression");
  const TokenCursor::Level level(t);
  ExprPtr inside = parse_tuple(t, {.may_be_empty = true});
  t.expect_symbol(")");
  return inside;
}

ExprPtr parse_attribute(TokenCursor& t, ExprPtr node) {
  const int line = t.take().line;
  const TemplateToken token = t.take();
  if (token.kind == TokenKind::name) {
    ExprPtr e = make_expr(ExprKind::attribute, line, std::move(node));
    e->attribute = token.text;
    return e;
  }
  if (token.kind != TokenKind::number || !token.number.integer())
    template_syntax_error(token.line, "expected name or number");
  ExprPtr index = make_expr(ExprKind::constant, token.line);
  index->value = token.number;
  return make_expr(ExprKind::item, line, std::move(node), std::move(index));
}

ExprPtr parse_subscript(TokenCursor& t, ExprPtr node) {
  const int line = t.take().line;
  const TokenCursor::Level level(t);
  std::vector<ExprPtr> parts(1);  // start, stop, step
  bool sliced = false;
  if (!t.at_symbol(":")) parts[0] = parse_expression(t);
  while (parts.size() < 3 && t.skip_symbol(":")) {
    sliced = true;
    const bool missing = t.at_symbol("]") || t.at_symbol(":");
    parts.push_back(missing ? nullptr : parse_expression(t));
  }
  if (!sliced && t.at_symbol(",")) {
    ExprPtr tuple = make_expr(ExprKind::tuple, line, std::move(parts[0]));
    while (t.skip_symbol(",")) tuple->add(parse_expression(t));
    parts[0] = std::move(tuple);
  }
  t.expect_symbol("]");
  if (!sliced) return make_expr(ExprKind::item, line, std::move(node), std::move(parts[0]));
  parts.resize(3);
  ExprPtr e = make_expr(ExprKind::slice, line, std::move(node));
  for (ExprPtr& part : parts) e->add(std::move(part));
  return e;
}

void parse_argument(TokenCursor& t, CallExprs& call) {
  const auto ensure = [&](bool valid) {
    if (!valid) template_syntax_error(t.line(), "invalid syntax for function call expression");
  };
  if (t.skip_symbol("*")) {
    ensure(!call.star && !call.star_star);
    call.star = parse_expression(t);
  } else if (t.skip_symbol("**")) {
    ensure(!call.star_star);
    call.star_star = parse_expression(t);
  } else if (t.at(TokenKind::name) && t.ahead().kind == TokenKind::symbol && t.ahead().text == "=") {
    ensure(!call.star_star);
    std::string key = t.take().text;
    t.take();
    call.keywords.emplace_back(std::move(key), parse_expression(t));
  } else {
    ensure(!call.star && !call.star_star && call.keywords.empty());
    call.positional.push_back(parse_expression(t));
  }
}

CallExprs parse_call(TokenCursor& t) {
  const TokenCursor::Level level(t);
  t.expect_symbol("(");
  CallExprs call;
  for (bool first = true; !t.at_symbol(")"); first = false) {
    if (!first) {
      t.expect_symbol(",");
      if (t.at_symbol(")")) break;
    }
    parse_argument(t, call);
  }
  t.expect_symbol(")");
  return call;
}

ExprPtr parse_call_of(TokenCursor& t, ExprPtr node) {
  const int line = t.line();
  ExprPtr e = make_expr(ExprKind::call, line, std::move(node));
  e->set_call(parse_call(t));
  return e;
}

ExprPtr parse_postfix(TokenCursor& t, ExprPtr node) {
  for (;; t.require_shallow(*node)) {
    if (t.at_symbol(".")) {
      node = parse_attribute(t, std::move(node));
    } else if (t.at_symbol("[")) {
      node = parse_subscript(t, std::move(node));
    } else if (t.at_symbol("(")) {
      node = parse_call_of(t, std::move(node));
    } else {
      return node;
    }
  }
}

/// A sign binds more tightly than filters and less tightly than what follows a name: -x.y|abs is (-(x.y))|abs.
ExprPtr parse_signed(TokenCursor& t) {
  if (!t.at_symbol("-") && !t.at_symbol("+")) return parse_postfix(t, parse_primary(t));
  const TokenCursor::Level level(t);
  const TemplateToken token = t.take();
  ExprPtr e = make_expr(ExprKind::unary, token.line, parse_signed(t));
  e->op = token.text == "-" ? PyOp::neg : PyOp::pos;
  return parse_postfix(t, std::move(e));
}

ExprPtr parse_test(TokenCursor& t, ExprPtr node) {
  const int line = t.take().line;
  const bool negated = t.skip_name("not");
  ExprPtr e = make_expr(ExprKind::test, line, std::move(node));
  e->name = t.expect_name("the name of a test");
  while (t.skip_symbol(".")) e->name += "." + t.expect_name();
  const TokenKind kind = t.current().kind;
  if (t.at_symbol("(")) {
    e->set_call(parse_call(t));
  } else if ((kind == TokenKind::name || kind == TokenKind::string || kind == TokenKind::number || t.at_symbol("[") ||
              t.at_symbol("{")) &&
             !t.at_name({"else", "or", "and"})) {
    if (t.at_name("is")) template_syntax_error(line, "You cannot chain multiple tests with is");
    CallExprs argument;
    argument.positional.push_back(parse_postfix(t, parse_primary(t)));
    e->set_call(std::move(argument));
  }
  return negated ? make_expr(ExprKind::logical_not, line, std::move(e)) : std::move(e);
}

ExprPtr parse_filters_and_tests(TokenCursor& t, ExprPtr node) {
  for (;; t.require_shallow(*node)) {
    if (t.at_symbol("|")) {
      t.take();
      node = parse_filter(t, std::move(node));
    } else if (t.at_name("is")) {
      node = parse_test(t, std::move(node));
    } else if (t.at_symbol("(")) {
      node = parse_call_of(t, std::move(node));
    } else {
      return node;
    }
  }
}

/// An operand of a binary operator: signs, then a name, literal or bracket with calls, items and attributes, then
/// filters and tests.
ExprPtr parse_operand(TokenCursor& t) {
  return parse_filters_and_tests(t, parse_signed(t));
}

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

ExprPtr parse_filter(TokenCursor& t, ExprPtr node) {
  ExprPtr e = make_expr(ExprKind::filter, t.line(), std::move(node));
  e->name = t.expect_name("the name of a filter");
  while (t.skip_symbol(".")) e->name += "." + t.expect_name();
  if (t.at_symbol("(")) e->set_call(parse_call(t));
  return e;
}

ExprPtr parse_filter_chain(TokenCursor& t, ExprPtr node) {
  for (; t.skip_symbol("|"); t.require_shallow(*node)) node = parse_filter(t, std::move(node));
  return node;
}

}  // namespace qtrain
