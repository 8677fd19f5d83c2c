#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/jinja/ast.h"
#include "text/template/python/value.h"

namespace qtrain {

/// Throws a syntax error (ErrorKind::input); the parser's caller adds the template's name.
[[noreturn]] void template_syntax_error(int line, const std::string& cause);

enum class TokenKind : std::uint8_t {
  data,            ///< text outside of tags
  variable_begin,  ///< {{
  variable_end,
  block_begin,  ///< {%
  block_end,
  name,
  string,
  number,
  symbol,  ///< an operator or bracket, in `text`
  end,
};

struct TemplateToken {
  TokenKind kind = TokenKind::end;
  std::string text;  ///< text, name, symbol, or the string with its escapes resolved
  PyValue number;
  int line = 0;
};

/// A position among the tokens of a template, and what parsing has found so far.
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

  /// Returns the current token and advances, but not past the last one.
  TemplateToken take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view word);
  bool skip_symbol(std::string_view s);
  // These throw a syntax error unless the expected token follows.
  std::string expect_name(std::string_view what = "a name");
  void expect_word(std::string_view word);
  void expect_symbol(std::string_view s);
  void expect(TokenKind kind, std::string_view what);
  [[noreturn]] void unexpected(std::string_view wanted) const;

  /// One level of nesting for the object's lifetime; throws a syntax error if too deep.
  class Level {
   public:
    explicit Level(TokenCursor& cursor);
    ~Level() { --cursor_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenCursor& cursor_;
  };
  /// Throws a syntax error if this tree is too high, since it is evaluated and destroyed recursively.
  void require_shallow(const TemplateExpr& e) const;

  SpecialNames read = {};  ///< special variables that expressions have read

 private:
  std::vector<TemplateToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace qtrain
