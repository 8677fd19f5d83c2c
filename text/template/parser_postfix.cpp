#include <algorithm>

#include "text/template/parser.h"

namespace qtrain {

ExprPtr TemplateParser::parse_postfix(ExprPtr node) {
  for (std::size_t n = 0;; require_shallow(++n)) {
    if (at_symbol(".")) {
      node = parse_attribute(std::move(node));
    } else if (at_symbol("[")) {
      node = parse_subscript(std::move(node));
    } else if (at_symbol("(")) {
      const int line = current().line;
      node = make(ExprKind::call, line, std::move(node));
      node->call = parse_call();
    } else {
      return node;
    }
  }
}

ExprPtr TemplateParser::parse_attribute(ExprPtr node) {
  const int line = take().line;
  const TemplateToken token = take();
  if (token.kind == TokenKind::name) {
    ExprPtr e = make(ExprKind::attribute, line, std::move(node));
    e->attribute = token.text;
    return e;
  }
  if (token.kind != TokenKind::number || !token.number.integer())
    template_syntax_error(token.line, "expected name or number");
  ExprPtr index = make(ExprKind::constant, token.line);
  index->value = token.number;
  return make(ExprKind::item, line, std::move(node), std::move(index));
}

ExprPtr TemplateParser::parse_subscript(ExprPtr node) {
  const int line = take().line;
  const Level level(*this);
  std::vector<ExprPtr> parts(1);  // start, stop, step
  bool sliced = false;
  if (!at_symbol(":")) parts[0] = parse_expression();
  while (parts.size() < 3 && skip_symbol(":")) {
    sliced = true;
    const bool missing = at_symbol("]") || at_symbol(":");
    parts.push_back(missing ? nullptr : parse_expression());
  }
  if (!sliced && at_symbol(",")) {
    ExprPtr tuple = make(ExprKind::tuple, line, std::move(parts[0]));
    while (skip_symbol(",")) tuple->children.push_back(parse_expression());
    parts[0] = std::move(tuple);
  }
  expect_symbol("]");
  if (!sliced) return make(ExprKind::item, line, std::move(node), std::move(parts[0]));
  parts.resize(3);
  ExprPtr e = make(ExprKind::slice, line, std::move(node));
  for (ExprPtr& part : parts) e->children.push_back(std::move(part));
  return e;
}

CallExprs TemplateParser::parse_call() {
  const Level level(*this);
  expect_symbol("(");
  CallExprs call;
  for (bool first = true; !at_symbol(")"); first = false) {
    if (!first) {
      expect_symbol(",");
      if (at_symbol(")")) break;
    }
    parse_argument(call);
  }
  expect_symbol(")");
  return call;
}

void TemplateParser::parse_argument(CallExprs& call) {
  const auto ensure = [&](bool valid) {
    if (!valid) template_syntax_error(current().line, "invalid syntax for function call expression");
  };
  if (skip_symbol("*")) {
    ensure(!call.star && !call.star_star);
    call.star = parse_expression();
  } else if (skip_symbol("**")) {
    ensure(!call.star_star);
    call.star_star = parse_expression();
  } else if (current().kind == TokenKind::name && ahead().kind == TokenKind::symbol && ahead().text == "=") {
    ensure(!call.star_star);
    std::string key = take().text;
    take();
    call.keywords.emplace_back(std::move(key), parse_expression());
  } else {
    ensure(!call.star && !call.star_star && call.keywords.empty());
    call.positional.push_back(parse_expression());
  }
}

ExprPtr TemplateParser::parse_filters_and_tests(ExprPtr node) {
  for (std::size_t n = 0;; require_shallow(++n)) {
    if (at_symbol("|")) {
      take();
      node = parse_filter(std::move(node));
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at_symbol("(")) {
      const int line = current().line;
      node = make(ExprKind::call, line, std::move(node));
      node->call = parse_call();
    } else {
      return node;
    }
  }
}

ExprPtr TemplateParser::parse_filter(ExprPtr node) {
  ExprPtr e = make(ExprKind::filter, current().line, std::move(node));
  e->name = expect_name("the name of a filter");
  while (skip_symbol(".")) e->name += "." + expect_name();
  if (at_symbol("(")) e->call = parse_call();
  return e;
}

/// Filters behind `|` one after the other; null if there is none and `node` is null.
ExprPtr TemplateParser::parse_filter_chain(ExprPtr node) {
  for (std::size_t n = 0; skip_symbol("|"); require_shallow(++n)) node = parse_filter(std::move(node));
  return node;
}

ExprPtr TemplateParser::parse_test(ExprPtr node) {
  const int line = take().line;
  const bool negated = skip_name("not");
  ExprPtr e = make(ExprKind::test, line, std::move(node));
  e->name = expect_name("the name of a test");
  while (skip_symbol(".")) e->name += "." + expect_name();
  const TokenKind kind = current().kind;
  if (at_symbol("(")) {
    e->call = parse_call();
  } else if ((kind == TokenKind::name || kind == TokenKind::string || kind == TokenKind::number || at_symbol("[") ||
              at_symbol("{")) &&
             !at_name({"else", "or", "and"})) {
    if (at_name("is")) template_syntax_error(line, "You cannot chain multiple tests with is");
    e->call.positional.push_back(parse_postfix(parse_primary()));
  }
  return negated ? make(ExprKind::logical_not, line, std::move(e)) : std::move(e);
}

}  // namespace qtrain
