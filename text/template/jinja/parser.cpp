#include "text/template/jinja/parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/template/jinja/expression_parser.h"
#include "text/template/jinja/lexer.h"
#include "text/template/jinja/tokens.h"

namespace qtrain {
namespace {

/// Jinja tags that make no sense in a chat template, which has no second file.
constexpr std::array<std::string_view, 5> kUnsupported = {"extends", "include", "import", "from", "autoescape"};

ExprPtr parse_target(TokenCursor& t, std::string_view end = {});

ExprPtr parse_target_item(TokenCursor& t, std::string_view end = {}) {
  const int line = t.line();
  if (t.at_symbol("(")) {
    const TokenCursor::Level level(t);
    t.take();
    ExprPtr inside = parse_target(t, end);
    t.expect_symbol(")");
    return inside;
  }
  ExprPtr e = make_expr(ExprKind::name, line);
  e->name = t.expect_name("the name of a variable");
  if (e->name == "true" || e->name == "false" || e->name == "none")
    template_syntax_error(line, "can't assign to '" + e->name + "'");
  if (t.skip_symbol(".")) {
    e->kind = ExprKind::ns_name;
    e->attribute = t.expect_name("the name of an attribute");
  }
  return e;
}

/// Parses an assignment target: a name, namespace.attribute, or a tuple of them.
ExprPtr parse_target(TokenCursor& t, std::string_view end) {
  ExprPtr first = parse_target_item(t, end);
  if (!t.at_symbol(",")) return first;
  const int line = first->line;
  ExprPtr tuple = make_expr(ExprKind::tuple, line, std::move(first));
  while (t.skip_symbol(",")) {
    if (at_tuple_end(t, end) || t.at_symbol("=")) break;
    tuple->add(parse_target_item(t, end));
  }
  return tuple;
}

void parse_signature(TokenCursor& t, MacroParts& macro) {
  t.expect_symbol("(");
  while (!t.at_symbol(")")) {
    if (!macro.parameters.empty()) t.expect_symbol(",");
    macro.parameters.push_back(t.expect_name("the name of a parameter"));
    if (t.skip_symbol("="))
      macro.defaults.push_back(parse_expression(t));
    else if (!macro.defaults.empty())
      template_syntax_error(t.line(), "non-default argument follows default argument");
  }
  t.expect_symbol(")");
}

/// Recursive descent over the tags and the text between them.
class StatementParser {
 public:
  explicit StatementParser(std::vector<TemplateToken> tokens) : t_(std::move(tokens)) {}

  ParsedTemplate parse() {
    TemplateBody body = parse_body({});
    return {std::move(body), has_generation_};
  }

 private:
  StmtPtr make_stmt(StmtKind kind) const {
    auto s = std::make_unique<TemplateStmt>();
    s->kind = kind;
    s->line = t_.line();
    return s;
  }

  /// Parses up to a tag that begins with one of `ends`, which is not consumed; without `ends`, to the end of the
  /// template.
  TemplateBody parse_body(TokenCursor::Words ends) {
    const TokenCursor::Level level(t_);
    TemplateBody body;
    for (;;) {
      const TokenKind kind = t_.current().kind;
      if (kind == TokenKind::end) {
        if (ends.size() == 0) return body;
        t_.unexpected("'" + std::string(*ends.begin()) + "'");
      }
      if (kind == TokenKind::data) {
        body.push_back(make_stmt(StmtKind::text));
        body.back()->text = t_.take().text;
      } else if (kind == TokenKind::variable_begin) {
        body.push_back(parse_output());
      } else {
        t_.take();  // {%
        if (t_.at_name(ends)) return body;
        body.push_back(parse_statement());
        t_.expect(TokenKind::block_end, "the end of the tag");
      }
    }
  }

  /// Parses from the end of a tag to the next of `ends`.
  TemplateBody parse_block_body(TokenCursor::Words ends) {
    t_.skip_symbol(":");
    t_.expect(TokenKind::block_end, "the end of the tag");
    return parse_body(ends);
  }

  StmtPtr parse_output() {
    t_.take();
    StmtPtr s = make_stmt(StmtKind::output);
    s->value = parse_tuple(t_);
    t_.expect(TokenKind::variable_end, "the end of the expression");
    return s;
  }

  StmtPtr parse_statement() {
    struct Tag {
      std::string_view word;
      StmtPtr (StatementParser::*parse)();
    };
    static constexpr std::array<Tag, 12> tags = {{{"set", &StatementParser::parse_set},
                                                  {"for", &StatementParser::parse_for},
                                                  {"if", &StatementParser::parse_if},
                                                  {"macro", &StatementParser::parse_macro},
                                                  {"call", &StatementParser::parse_call_block},
                                                  {"filter", &StatementParser::parse_filter_block},
                                                  {"with", &StatementParser::parse_with},
                                                  {"block", &StatementParser::parse_block},
                                                  {"generation", &StatementParser::parse_generation},
                                                  {"break", &StatementParser::parse_loop_control},
                                                  {"continue", &StatementParser::parse_loop_control},
                                                  {"print", &StatementParser::parse_print}}};
    for (const Tag& tag : tags)
      if (t_.at_name(tag.word)) return (this->*tag.parse)();
    if (std::any_of(kUnsupported.begin(), kUnsupported.end(), [&](auto word) { return t_.at_name(word); }))
      template_syntax_error(t_.line(), "the tag '" + t_.current().text + "' is not available in chat templates");
    if (!t_.at(TokenKind::name)) t_.unexpected("the name of a tag");
    template_syntax_error(t_.line(), "Encountered unknown tag '" + t_.current().text + "'");
  }

  StmtPtr parse_set() {
    StmtPtr s = make_stmt(StmtKind::set);
    t_.take();
    s->target = parse_target(t_);
    if (t_.skip_symbol("=")) {
      s->value = parse_tuple(t_);
      return s;
    }
    s->kind = StmtKind::set_block;
    s->value = parse_filter_chain(t_, nullptr);
    s->body = parse_block_body({"endset"});
    t_.take();
    return s;
  }

  StmtPtr parse_for() {
    StmtPtr s = make_stmt(StmtKind::for_loop);
    t_.take();
    s->target = parse_target(t_, "in");
    t_.expect_word("in");
    s->value = parse_tuple(t_, {.conditional = Conditional::not_allowed, .end = "recursive"});
    if (t_.skip_name("if")) s->test = parse_expression(t_);
    s->recursive = t_.skip_name("recursive");
    ++loops_;
    s->body = parse_block_body({"endfor", "else"});
    --loops_;
    if (t_.skip_name("else")) s->otherwise = parse_block_body({"endfor"});
    t_.expect_word("endfor");
    return s;
  }

  StmtPtr parse_if() {
    StmtPtr s = make_stmt(StmtKind::branch);
    while (t_.at_name({"if", "elif"})) {
      t_.take();
      ExprPtr test = parse_tuple(t_, {.conditional = Conditional::not_allowed});
      TemplateBody body = parse_block_body({"elif", "else", "endif"});
      s->branches.emplace_back(std::move(test), std::move(body));
    }
    if (t_.skip_name("else")) s->branches.emplace_back(nullptr, parse_block_body({"endif"}));
    t_.expect_word("endif");
    return s;
  }

  /// Parses the body of a macro or call block, in which outer loops do not count and special names are recorded.
  void parse_macro_body(TemplateStmt& s, std::string_view end) {
    const SpecialNames around = std::exchange(t_.read, {});
    const int loops = std::exchange(loops_, 0);
    s.body = parse_block_body({end});
    t_.take();
    loops_ = loops;
    s.macro.uses = t_.read;
    t_.read.add(around);
  }

  StmtPtr parse_macro() {
    StmtPtr s = make_stmt(StmtKind::macro);
    t_.take();
    s->name = t_.expect_name("the name of a macro");
    parse_signature(t_, s->macro);
    parse_macro_body(*s, "endmacro");
    return s;
  }

  StmtPtr parse_call_block() {
    StmtPtr s = make_stmt(StmtKind::call_block);
    t_.take();
    if (t_.at_symbol("(")) parse_signature(t_, s->macro);
    s->value = parse_expression(t_);
    if (s->value->kind != ExprKind::call) template_syntax_error(s->line, "expected call");
    parse_macro_body(*s, "endcall");
    return s;
  }

  StmtPtr parse_filter_block() {
    StmtPtr s = make_stmt(StmtKind::filter_block);
    t_.take();
    s->value = parse_filter_chain(t_, parse_filter(t_, nullptr));
    s->body = parse_block_body({"endfilter"});
    t_.take();
    return s;
  }

  StmtPtr parse_with() {
    StmtPtr s = make_stmt(StmtKind::with);
    t_.take();
    while (!t_.at(TokenKind::block_end)) {
      if (!s->bindings.empty()) t_.expect_symbol(",");
      ExprPtr target = parse_target_item(t_);
      t_.expect_symbol("=");
      s->bindings.emplace_back(std::move(target), parse_expression(t_));
    }
    s->body = parse_block_body({"endwith"});
    t_.take();
    return s;
  }

  StmtPtr parse_block() {
    StmtPtr s = make_stmt(StmtKind::block);
    t_.take();
    s->name = t_.expect_name("the name of a block");
    t_.skip_name("scoped");
    s->body = parse_block_body({"endblock"});
    t_.take();
    t_.skip_name(s->name);
    return s;
  }

  StmtPtr parse_generation() {
    StmtPtr s = make_stmt(StmtKind::generation);
    t_.take();
    has_generation_ = true;
    parse_macro_body(*s, "endgeneration");
    return s;
  }

  StmtPtr parse_loop_control() {
    StmtPtr s = make_stmt(t_.at_name("break") ? StmtKind::loop_break : StmtKind::loop_continue);
    if (loops_ == 0) template_syntax_error(s->line, "'" + t_.current().text + "' outside loop");
    t_.take();
    return s;
  }

  StmtPtr parse_print() {
    StmtPtr s = make_stmt(StmtKind::output);
    t_.take();
    s->value = make_expr(ExprKind::concat, s->line);
    while (!t_.at(TokenKind::block_end)) {
      if (!s->value->children.empty()) t_.expect_symbol(",");
      s->value->add(parse_expression(t_));
    }
    return s;
  }

  TokenCursor t_;
  int loops_ = 0;  ///< number of enclosing loops
  bool has_generation_ = false;
};

}  // namespace

ParsedTemplate parse_template(std::string_view source) {
  return StatementParser(lex_template(source)).parse();
}

}  // namespace qtrain
