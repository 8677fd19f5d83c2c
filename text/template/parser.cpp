#include "text/template/parser.h"

#include <algorithm>

namespace qtrain {

bool TemplateParser::at_name(Words words) const {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return at_name(w); });
}

bool TemplateParser::skip_name(std::string_view word) {
  const bool there = at_name(word);
  if (there) take();
  return there;
}

bool TemplateParser::skip_symbol(std::string_view s) {
  const bool there = at_symbol(s);
  if (there) take();
  return there;
}

void TemplateParser::unexpected(std::string_view wanted) const {
  std::string found;
  switch (current().kind) {
    case TokenKind::end: found = "the end of the template"; break;
    case TokenKind::block_end: found = "'%}'"; break;
    case TokenKind::variable_end: found = "'}}'"; break;
    case TokenKind::string: found = "a string"; break;
    default: found = "'" + current().text + "'";
  }
  template_syntax_error(current().line, "expected " + std::string(wanted) + ", got " + found);
}

std::string TemplateParser::expect_name(std::string_view what) {
  if (current().kind != TokenKind::name) unexpected(what);
  return take().text;
}

void TemplateParser::expect_word(std::string_view word) {
  if (!skip_name(word)) unexpected("'" + std::string(word) + "'");
}

void TemplateParser::expect_symbol(std::string_view s) {
  if (!skip_symbol(s)) unexpected("'" + std::string(s) + "'");
}

void TemplateParser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) unexpected(what);
  take();
}

ParsedTemplate parse_template(std::string_view source) {
  return TemplateParser(lex_template(source)).parse();
}

}  // namespace qtrain
