#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/jinja/ast.h"
#include "text/template/jinja/token.h"

namespace qtrain {

/// A place among the tokens of a template, and what parsing has come by up to there.
class TokenCursor {
 public:
  using Words = std::initializer_list<std::string_view>;
  explicit TokenCursor(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& current() const { return tokens_[at_]; }
  const TemplateToken& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_name(std::string_view word) const { return at(TokenKind::name) && current().text == word; }
  bool at_name(Words words) const;
  bool at_symbol(std::string_view s) const { return at(TokenKind::symbol) && current().text == s; }

  /// The current token, and moves on; the last one stays.
  TemplateToken take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view word);
  bool skip_symbol(std::string_view s);
  // Syntax errors where something else stands there.
  std::string expect_name(std::string_view what = "a name");
  void expect_word(std::string_view word);
  void expect_symbol(std::string_view s);
  void expect(TokenKind kind, std::string_view what);
  [[noreturn]] void unexpected(std::string_view wanted) const;

  /// One level of nesting for as long as it lives; a syntax error when too deep.
  class Level {
   public:
    explicit Level(TokenCursor& cursor);
    ~Level() { --cursor_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenCursor& cursor_;
  };
  /// A syntax error where this tree is too high: it is evaluated, and freed, by recursion.
  void require_shallow(const TemplateExpr& e) const;

  SpecialNames read = {};  ///< variables that expressions have named

 private:
  std::vector<TemplateToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace qtrain
