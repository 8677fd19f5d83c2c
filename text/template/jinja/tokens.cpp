#include "text/template/jinja/tokens.h"

#include "core/error.h"

namespace qtrain {
namespace {

constexpr int kMaxHeight = 500;  // Python's recursion limit stops Jinja at 491 operators in a row, or earlier
constexpr int kMaxNesting = 100;

}  // namespace

void template_syntax_error(int line, const std::string& cause) {
  fail(ErrorKind::input, {.cause = "template syntax error: " + cause, .place = std::to_string(line)});
}

bool TokenCursor::at_name(Words words) const {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return at_name(w); });
}

bool TokenCursor::skip_name(std::string_view word) {
  const bool there = at_name(word);
  if (there) take();
  return there;
}

bool TokenCursor::skip_symbol(std::string_view s) {
  const bool there = at_symbol(s);
  if (there) take();
  return there;
}

void TokenCursor::unexpected(std::string_view wanted) const {
  std::string found;
  switch (current().kind) {
    case TokenKind::end: found = "the end of the template"; break;
    case TokenKind::block_end: found = "'%}'"; break;
    case TokenKind::variable_end: found = "'}}'"; break;
    case TokenKind::string: found = "a string"; break;
    default: found = "'" + current().text + "'";
  }
  template_syntax_error(line(), "expected " + std::string(wanted) + ", got " + found);
}

std::string TokenCursor::expect_name(std::string_view what) {
  if (current().kind != TokenKind::name) unexpected(what);
  return take().text;
}

void TokenCursor::expect_word(std::string_view word) {
  if (!skip_name(word)) unexpected("'" + std::string(word) + "'");
}

void TokenCursor::expect_symbol(std::string_view s) {
  if (!skip_symbol(s)) unexpected("'" + std::string(s) + "'");
}

void TokenCursor::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) unexpected(what);
  take();
}

TokenCursor::Level::Level(TokenCursor& cursor) : cursor_(cursor) {
  if (++cursor_.depth_ > kMaxNesting) template_syntax_error(cursor_.line(), "the template is nested too deeply");
}

void TokenCursor::require_shallow(const TemplateExpr& e) const {
  if (e.height > kMaxHeight)
    template_syntax_error(line(), "an expression is nested too deeply, or has too many operators in a row");
}

}  // namespace qtrain
