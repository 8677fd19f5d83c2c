#include <algorithm>
#include <array>

#include "text/template/parser.h"

namespace qtrain {
namespace {

/// Tags of Jinja that make no sense in a chat template, for which there is no second file.
constexpr std::array<std::string_view, 5> kUnsupported = {"extends", "include", "import", "from", "autoescape"};

}  // namespace

StmtPtr TemplateParser::make_stmt(StmtKind kind) const {
  auto s = std::make_unique<TemplateStmt>();
  s->kind = kind;
  s->line = current().line;
  return s;
}

ParsedTemplate TemplateParser::parse() {
  TemplateBody body = parse_body({});
  return {std::move(body), has_generation_};
}

/// Up to a tag that begins with one of `ends`, which stays; up to the end of the template without `ends`.
TemplateBody TemplateParser::parse_body(Words ends) {
  const Level level(*this);
  TemplateBody body;
  for (;;) {
    const TokenKind kind = current().kind;
    if (kind == TokenKind::end) {
      if (ends.size() == 0) return body;
      unexpected("'" + std::string(*ends.begin()) + "'");
    }
    if (kind == TokenKind::data) {
      body.push_back(make_stmt(StmtKind::text));
      body.back()->text = take().text;
    } else if (kind == TokenKind::variable_begin) {
      body.push_back(parse_output());
    } else {
      take();  // {%
      if (at_name(ends)) return body;
      body.push_back(parse_statement());
      expect(TokenKind::block_end, "the end of the tag");
    }
  }
}

/// From the end of a tag to the next of `ends`.
TemplateBody TemplateParser::parse_block_body(Words ends) {
  skip_symbol(":");
  expect(TokenKind::block_end, "the end of the tag");
  return parse_body(ends);
}

StmtPtr TemplateParser::parse_output() {
  take();
  StmtPtr s = make_stmt(StmtKind::output);
  s->value = parse_tuple(Conditional::allowed, {});
  expect(TokenKind::variable_end, "the end of the expression");
  return s;
}

StmtPtr TemplateParser::parse_statement() {
  struct Tag {
    std::string_view word;
    StmtPtr (TemplateParser::*parse)();
  };
  static constexpr std::array<Tag, 12> tags = {{{"set", &TemplateParser::parse_set},
                                                {"for", &TemplateParser::parse_for},
                                                {"if", &TemplateParser::parse_if},
                                                {"macro", &TemplateParser::parse_macro},
                                                {"call", &TemplateParser::parse_call_block},
                                                {"filter", &TemplateParser::parse_filter_block},
                                                {"with", &TemplateParser::parse_with},
                                                {"block", &TemplateParser::parse_block},
                                                {"generation", &TemplateParser::parse_generation},
                                                {"break", &TemplateParser::parse_loop_control},
                                                {"continue", &TemplateParser::parse_loop_control},
                                                {"print", &TemplateParser::parse_print}}};
  for (const Tag& tag : tags)
    if (at_name(tag.word)) return (this->*tag.parse)();
  if (std::any_of(kUnsupported.begin(), kUnsupported.end(), [&](auto word) { return at_name(word); }))
    template_syntax_error(current().line, "the tag '" + current().text + "' is not available in chat templates");
  if (current().kind != TokenKind::name) unexpected("the name of a tag");
  template_syntax_error(current().line, "Encountered unknown tag '" + current().text + "'");
}

ExprPtr TemplateParser::parse_target_item(Words ends) {
  const int line = current().line;
  if (at_symbol("(")) {
    const Level level(*this);
    take();
    ExprPtr inside = parse_target(ends);
    expect_symbol(")");
    return inside;
  }
  ExprPtr e = make(ExprKind::name, line);
  e->name = expect_name("the name of a variable");
  if (at_name({}) || e->name == "true" || e->name == "false" || e->name == "none")
    template_syntax_error(line, "can't assign to '" + e->name + "'");
  if (skip_symbol(".")) {
    e->kind = ExprKind::ns_name;
    e->attribute = expect_name("the name of an attribute");
  }
  return e;
}

/// What is assigned to: a name, namespace.attribute, or a tuple of them.
ExprPtr TemplateParser::parse_target(Words ends) {
  ExprPtr first = parse_target_item(ends);
  if (!at_symbol(",")) return first;
  const int line = first->line;
  ExprPtr tuple = make(ExprKind::tuple, line, std::move(first));
  while (skip_symbol(",")) {
    if (at_tuple_end(ends) || at_symbol("=")) break;
    tuple->children.push_back(parse_target_item(ends));
  }
  return tuple;
}

StmtPtr TemplateParser::parse_set() {
  StmtPtr s = make_stmt(StmtKind::set);
  take();
  s->target = parse_target({});
  if (skip_symbol("=")) {
    s->value = parse_tuple(Conditional::allowed, {});
    return s;
  }
  s->kind = StmtKind::set_block;
  s->value = parse_filter_chain(nullptr);
  s->body = parse_block_body({"endset"});
  take();
  return s;
}

StmtPtr TemplateParser::parse_for() {
  StmtPtr s = make_stmt(StmtKind::for_loop);
  take();
  s->target = parse_target({"in"});
  expect_word("in");
  s->value = parse_tuple(Conditional::not_allowed, {"recursive"});
  if (skip_name("if")) s->test = parse_expression();
  s->recursive = skip_name("recursive");
  ++loops_;
  s->body = parse_block_body({"endfor", "else"});
  --loops_;
  if (skip_name("else")) s->otherwise = parse_block_body({"endfor"});
  expect_word("endfor");
  return s;
}

StmtPtr TemplateParser::parse_if() {
  StmtPtr s = make_stmt(StmtKind::branch);
  while (at_name({"if", "elif"})) {
    take();
    ExprPtr test = parse_tuple(Conditional::not_allowed, {});
    TemplateBody body = parse_block_body({"elif", "else", "endif"});
    s->branches.emplace_back(std::move(test), std::move(body));
  }
  if (skip_name("else")) s->branches.emplace_back(nullptr, parse_block_body({"endif"}));
  expect_word("endif");
  return s;
}

void TemplateParser::parse_signature(MacroParts& macro) {
  expect_symbol("(");
  while (!at_symbol(")")) {
    if (!macro.parameters.empty()) expect_symbol(",");
    macro.parameters.push_back(expect_name("the name of a parameter"));
    if (skip_symbol("="))
      macro.defaults.push_back(parse_expression());
    else if (!macro.defaults.empty())
      template_syntax_error(current().line, "non-default argument follows default argument");
  }
  expect_symbol(")");
}

/// The body of a macro or of a call block, in which loops outside do not count and special names are noted.
void TemplateParser::parse_macro_body(TemplateStmt& s, std::string_view end) {
  MacroParts* outer = std::exchange(macro_, &s.macro);
  const int loops = std::exchange(loops_, 0);
  s.body = parse_block_body({end});
  take();
  loops_ = loops;
  macro_ = outer;
  if (!outer) return;
  outer->uses_caller |= s.macro.uses_caller;
  outer->uses_varargs |= s.macro.uses_varargs;
  outer->uses_kwargs |= s.macro.uses_kwargs;
}

StmtPtr TemplateParser::parse_macro() {
  StmtPtr s = make_stmt(StmtKind::macro);
  take();
  s->name = expect_name("the name of a macro");
  parse_signature(s->macro);
  parse_macro_body(*s, "endmacro");
  return s;
}

StmtPtr TemplateParser::parse_call_block() {
  StmtPtr s = make_stmt(StmtKind::call_block);
  take();
  if (at_symbol("(")) parse_signature(s->macro);
  s->value = parse_expression();
  if (s->value->kind != ExprKind::call) template_syntax_error(s->line, "expected call");
  parse_macro_body(*s, "endcall");
  return s;
}

StmtPtr TemplateParser::parse_filter_block() {
  StmtPtr s = make_stmt(StmtKind::filter_block);
  take();
  s->value = parse_filter_chain(parse_filter(nullptr));
  s->body = parse_block_body({"endfilter"});
  take();
  return s;
}

StmtPtr TemplateParser::parse_with() {
  StmtPtr s = make_stmt(StmtKind::with);
  take();
  while (current().kind != TokenKind::block_end) {
    if (!s->bindings.empty()) expect_symbol(",");
    ExprPtr target = parse_target_item({});
    expect_symbol("=");
    s->bindings.emplace_back(std::move(target), parse_expression());
  }
  s->body = parse_block_body({"endwith"});
  take();
  return s;
}

StmtPtr TemplateParser::parse_block() {
  StmtPtr s = make_stmt(StmtKind::block);
  take();
  s->name = expect_name("the name of a block");
  skip_name("scoped");
  s->body = parse_block_body({"endblock"});
  take();
  skip_name(s->name);
  return s;
}

StmtPtr TemplateParser::parse_generation() {
  StmtPtr s = make_stmt(StmtKind::generation);
  take();
  has_generation_ = true;
  parse_macro_body(*s, "endgeneration");
  return s;
}

StmtPtr TemplateParser::parse_loop_control() {
  StmtPtr s = make_stmt(at_name("break") ? StmtKind::loop_break : StmtKind::loop_continue);
  if (loops_ == 0) template_syntax_error(s->line, "'" + current().text + "' outside loop");
  take();
  return s;
}

StmtPtr TemplateParser::parse_print() {
  StmtPtr s = make_stmt(StmtKind::output);
  take();
  s->value = make(ExprKind::concat, s->line);
  while (current().kind != TokenKind::block_end) {
    if (!s->value->children.empty()) expect_symbol(",");
    s->value->children.push_back(parse_expression());
  }
  return s;
}

}  // namespace qtrain
