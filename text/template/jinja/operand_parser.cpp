#include "text/template/jinja/operand_parser.h"

#include "text/template/jinja/expression_parser.h"
#include "text/template/jinja/syntax_error.h"

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

}  // namespace

ExprPtr parse_operand(TokenCursor& t) {
  return parse_filters_and_tests(t, parse_signed(t));
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
