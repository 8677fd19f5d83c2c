#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace qtrain {

/// Recursive descent over the tokens; the grammar is Jinja's, including its left-associative `**`.
class TemplateParser {
 public:
  explicit TemplateParser(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}
  ParsedTemplate parse();

 private:
  enum class Conditional : std::uint8_t { allowed, not_allowed };  // whether `a if b` may follow
  enum class Empty : std::uint8_t { allowed, not_allowed };        // whether nothing is a tuple
  using Words = std::initializer_list<std::string_view>;

  // Tokens.
  const TemplateToken& current() const { return tokens_[at_]; }
  const TemplateToken& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  TemplateToken take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool at_name(std::string_view word) const { return current().kind == TokenKind::name && current().text == word; }
  bool at_name(Words words) const;
  bool at_symbol(std::string_view s) const { return current().kind == TokenKind::symbol && current().text == s; }
  bool skip_name(std::string_view word);
  bool skip_symbol(std::string_view s);
  std::string expect_name(std::string_view what = "a name");
  void expect_word(std::string_view word);
  void expect_symbol(std::string_view s);
  void expect(TokenKind kind, std::string_view what);
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // Expressions.
  ExprPtr make(ExprKind kind, int line) const;
  ExprPtr make(ExprKind kind, int line, ExprPtr a, ExprPtr b = nullptr) const;
  ExprPtr parse_expression(Conditional conditional = Conditional::allowed);
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  bool parse_compare_operator(std::vector<PyCompare>& compares);
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary();
  ExprPtr parse_signed();
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_string();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_filter_chain(ExprPtr node);
  ExprPtr parse_filter(ExprPtr node);
  ExprPtr parse_test(ExprPtr node);
  ExprPtr parse_attribute(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_tuple(Conditional conditional, Words ends, Empty empty = Empty::not_allowed);
  bool at_tuple_end(Words ends) const;
  CallExprs parse_call();
  void parse_argument(CallExprs& call);

  // Statements.
  TemplateBody parse_body(Words ends);
  TemplateBody parse_block_body(Words ends);
  StmtPtr make_stmt(StmtKind kind) const;
  StmtPtr parse_output();
  StmtPtr parse_statement();
  StmtPtr parse_set();
  StmtPtr parse_for();
  StmtPtr parse_if();
  StmtPtr parse_macro();
  StmtPtr parse_call_block();
  StmtPtr parse_filter_block();
  StmtPtr parse_with();
  StmtPtr parse_block();
  StmtPtr parse_generation();
  StmtPtr parse_loop_control();
  StmtPtr parse_print();
  void parse_signature(MacroParts& macro);
  void parse_macro_body(TemplateStmt& stmt, std::string_view end);
  ExprPtr parse_target(Words ends);
  ExprPtr parse_target_item(Words ends);
  void end_block(std::string_view word);

  /// One level of nesting while parsing; an error when too deep.
  struct Level {
    explicit Level(TemplateParser& p);
    ~Level() { --parser.depth_; }
    TemplateParser& parser;
  };
  void require_shallow(std::size_t chained) const;

  std::vector<TemplateToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  bool has_generation_ = false;
  // Special names used by the macro body being parsed.
  MacroParts* macro_ = nullptr;
};

}  // namespace qtrain
