#include <algorithm>
#include <array>

#include "text/template/parser.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxChain = 400;  // operators of one precedence in a row; each is a level when evaluated
constexpr int kMaxNesting = 100;

struct Operator {
  std::string_view symbol;
  PyOp op;
};

ExprPtr constant(int line, PyValue value) {
  auto e = std::make_unique<TemplateExpr>();
  e->line = line;
  e->value = std::move(value);
  return e;
}

}  // namespace

TemplateParser::Level::Level(TemplateParser& p) : parser(p) {
  if (++parser.depth_ > kMaxNesting) template_syntax_error(p.current().line, "the template is nested too deeply");
}

void TemplateParser::require_shallow(std::size_t chained) const {
  if (chained > kMaxChain) template_syntax_error(current().line, "an expression with too many operators");
}

ExprPtr TemplateParser::make(ExprKind kind, int line) const {
  auto e = std::make_unique<TemplateExpr>();
  e->kind = kind;
  e->line = line;
  return e;
}

ExprPtr TemplateParser::make(ExprKind kind, int line, ExprPtr a, ExprPtr b) const {
  ExprPtr e = make(kind, line);
  e->children.push_back(std::move(a));
  if (b) e->children.push_back(std::move(b));
  return e;
}

ExprPtr TemplateParser::parse_expression(Conditional conditional) {
  const Level level(*this);
  return conditional == Conditional::allowed ? parse_conditional() : parse_or();
}

ExprPtr TemplateParser::parse_conditional() {
  ExprPtr then = parse_or();
  for (std::size_t n = 0; at_name("if"); require_shallow(++n)) {
    const int line = take().line;
    ExprPtr e = make(ExprKind::conditional, line, parse_or(), std::move(then));
    if (skip_name("else")) {
      const Level level(*this);
      e->children.push_back(parse_conditional());
    }
    then = std::move(e);
  }
  return then;
}

ExprPtr TemplateParser::parse_or() {
  ExprPtr left = parse_and();
  for (std::size_t n = 0; at_name("or"); require_shallow(++n)) {
    const int line = take().line;
    left = make(ExprKind::logical_or, line, std::move(left), parse_and());
  }
  return left;
}

ExprPtr TemplateParser::parse_and() {
  ExprPtr left = parse_not();
  for (std::size_t n = 0; at_name("and"); require_shallow(++n)) {
    const int line = take().line;
    left = make(ExprKind::logical_and, line, std::move(left), parse_not());
  }
  return left;
}

ExprPtr TemplateParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Level level(*this);
  const int line = take().line;
  return make(ExprKind::logical_not, line, parse_not());
}

bool TemplateParser::parse_compare_operator(std::vector<PyCompare>& compares) {
  static constexpr std::array<std::pair<std::string_view, PyCompare>, 6> symbols = {{{"==", PyCompare::eq},
                                                                                     {"!=", PyCompare::ne},
                                                                                     {"<", PyCompare::lt},
                                                                                     {"<=", PyCompare::le},
                                                                                     {">", PyCompare::gt},
                                                                                     {">=", PyCompare::ge}}};
  for (const auto& [symbol, compare] : symbols)
    if (skip_symbol(symbol)) {
      compares.push_back(compare);
      return true;
    }
  if (skip_name("in")) {
    compares.push_back(PyCompare::in);
    return true;
  }
  if (!at_name("not") || ahead().kind != TokenKind::name || ahead().text != "in") return false;
  take();
  take();
  compares.push_back(PyCompare::not_in);
  return true;
}

ExprPtr TemplateParser::parse_compare() {
  const int line = current().line;
  ExprPtr first = parse_sum();
  std::vector<PyCompare> compares;
  std::vector<ExprPtr> others;
  while (parse_compare_operator(compares)) others.push_back(parse_sum());
  if (compares.empty()) return first;
  ExprPtr e = make(ExprKind::compare, line, std::move(first));
  e->compares = std::move(compares);
  for (ExprPtr& other : others) e->children.push_back(std::move(other));
  return e;
}

ExprPtr TemplateParser::parse_sum() {
  ExprPtr left = parse_concat();
  for (std::size_t n = 0; at_symbol("+") || at_symbol("-"); require_shallow(++n)) {
    const TemplateToken token = take();
    left = make(ExprKind::binary, token.line, std::move(left), parse_concat());
    left->op = token.text == "+" ? PyOp::add : PyOp::sub;
  }
  return left;
}

ExprPtr TemplateParser::parse_concat() {
  const int line = current().line;
  ExprPtr first = parse_product();
  if (!at_symbol("~")) return first;
  ExprPtr e = make(ExprKind::concat, line, std::move(first));
  while (skip_symbol("~")) e->children.push_back(parse_product());
  return e;
}

ExprPtr TemplateParser::parse_product() {
  static constexpr std::array<Operator, 4> operators = {
      {{"*", PyOp::mul}, {"/", PyOp::div}, {"//", PyOp::floor_div}, {"%", PyOp::mod}}};
  ExprPtr left = parse_power();
  for (std::size_t n = 0;; require_shallow(++n)) {
    const auto found =
        std::find_if(operators.begin(), operators.end(), [&](const Operator& o) { return at_symbol(o.symbol); });
    if (found == operators.end()) return left;
    const int line = take().line;
    left = make(ExprKind::binary, line, std::move(left), parse_power());
    left->op = found->op;
  }
}

ExprPtr TemplateParser::parse_power() {
  ExprPtr left = parse_unary();
  for (std::size_t n = 0; at_symbol("**"); require_shallow(++n)) {
    const int line = take().line;
    left = make(ExprKind::binary, line, std::move(left), parse_unary());
    left->op = PyOp::pow;
  }
  return left;
}

ExprPtr TemplateParser::parse_unary() {
  return parse_filters_and_tests(parse_signed());
}

/// A sign binds tighter than filters and looser than what follows a name: -x.y|abs is (-(x.y))|abs.
ExprPtr TemplateParser::parse_signed() {
  if (!at_symbol("-") && !at_symbol("+")) return parse_postfix(parse_primary());
  const Level level(*this);
  const TemplateToken token = take();
  ExprPtr e = make(ExprKind::unary, token.line, parse_signed());
  e->op = token.text == "-" ? PyOp::neg : PyOp::pos;
  return parse_postfix(std::move(e));
}

ExprPtr TemplateParser::parse_primary() {
  const TemplateToken& token = current();
  if (token.kind == TokenKind::name) return parse_name();
  if (token.kind == TokenKind::string) return parse_string();
  if (token.kind == TokenKind::number) {
    const TemplateToken number = take();
    return constant(number.line, number.number);
  }
  if (at_symbol("[")) return parse_list();
  if (at_symbol("{")) return parse_dict();
  if (!skip_symbol("(")) unexpected("an expression");
  const Level level(*this);
  ExprPtr inside = parse_tuple(Conditional::allowed, {}, Empty::allowed);
  expect_symbol(")");
  return inside;
}

ExprPtr TemplateParser::parse_name() {
  const TemplateToken token = take();
  const std::string& word = token.text;
  if (word == "true" || word == "True") return constant(token.line, true);
  if (word == "false" || word == "False") return constant(token.line, false);
  if (word == "none" || word == "None") return constant(token.line, {});
  ExprPtr e = make(ExprKind::name, token.line);
  e->name = word;
  if (macro_) {
    macro_->uses_caller |= word == "caller";
    macro_->uses_varargs |= word == "varargs";
    macro_->uses_kwargs |= word == "kwargs";
  }
  return e;
}

ExprPtr TemplateParser::parse_string() {
  const int line = current().line;
  std::string text;
  while (current().kind == TokenKind::string) text += take().text;  // strings side by side are one
  return constant(line, std::move(text));
}

ExprPtr TemplateParser::parse_list() {
  ExprPtr e = make(ExprKind::list, take().line);
  while (!at_symbol("]")) {
    if (!e->children.empty()) expect_symbol(",");
    if (at_symbol("]")) break;
    e->children.push_back(parse_expression());
  }
  expect_symbol("]");
  return e;
}

ExprPtr TemplateParser::parse_dict() {
  ExprPtr e = make(ExprKind::dict, take().line);
  while (!at_symbol("}")) {
    if (!e->children.empty()) expect_symbol(",");
    if (at_symbol("}")) break;
    e->children.push_back(parse_expression());
    expect_symbol(":");
    e->children.push_back(parse_expression());
  }
  expect_symbol("}");
  return e;
}

bool TemplateParser::at_tuple_end(Words ends) const {
  return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end || at_symbol(")") ||
         at_name(ends);
}

/// One expression, or several with commas between them; `ends` are names that end it.
ExprPtr TemplateParser::parse_tuple(Conditional conditional, Words ends, Empty empty) {
  ExprPtr tuple = make(ExprKind::tuple, current().line);
  bool commas = false;
  while (!at_tuple_end(ends)) {
    tuple->children.push_back(parse_expression(conditional));
    if (!skip_symbol(",")) break;
    commas = true;
  }
  if (commas) return tuple;
  if (tuple->children.empty()) {
    if (empty == Empty::not_allowed) unexpected("an expression");
    return tuple;
  }
  return std::move(tuple->children[0]);
}

}  // namespace qtrain
