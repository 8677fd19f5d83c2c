#include "text/template/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "text/template/python/characters.h"
#include "text/template/python/numbers.h"
#include "text/template/python/repr.h"
#include "text/template/python/text.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxSource = std::size_t{4} << 20;

std::size_t float_length(std::string_view text) {
  const std::size_t whole = digits_length(text, 10);
  if (whole == 0) return 0;
  std::size_t end = whole;
  if (end + 1 < text.size() && text[end] == '.') {
    const std::size_t fraction = digits_length(text.substr(end + 1), 10);
    if (fraction > 0) end += 1 + fraction;
  }
  if (end < text.size() && (text[end] | 0x20) == 'e') {
    const bool sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
    const std::size_t exponent = digits_length(text.substr(std::min(text.size(), end + (sign ? 2 : 1))), 10);
    if (exponent > 0) end += (sign ? 2 : 1) + exponent;
  }
  return end == whole ? 0 : end;
}

std::size_t int_length(std::string_view text, int& base) {
  base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (base != 10) {
      const std::size_t n = digits_length(text.substr(2), base, Leading::underscore);
      if (n > 0) return 2 + n;
      base = 10;
    }
  }
  if (text[0] != '0') return digits_length(text, 10);
  std::size_t end = 1;  // only zeros
  while (end < text.size() && (text[end] == '0' || (text[end] == '_' && end + 1 < text.size() && text[end + 1] == '0')))
    ++end;
  return end;
}

std::optional<char32_t> parse_hex(std::string_view text, std::size_t digits) {
  if (text.size() < digits || digits_length(text.substr(0, digits), 16) != digits) return std::nullopt;
  char32_t c = 0;
  for (const char d : text.substr(0, digits)) c = c * 16 + static_cast<char32_t>(digit_value(d));
  return c <= 0x10ffff ? std::optional(c) : std::nullopt;
}

/// The character of a one-letter escape.
std::optional<char> simple_escape(char c) {
  constexpr std::string_view from = "\\'\"abfnrtv", to = "\\'\"\a\b\f\n\r\t\v";
  const std::size_t at = from.find(c);
  return at == std::string_view::npos ? std::nullopt : std::optional(to[at]);
}

/// Appends the character of the escape after a backslash; returns the escape's length.
std::size_t append_escape(std::string& out, std::string_view text, int line) {
  const char c = text[0];
  if (const auto simple = simple_escape(c)) {
    out += *simple;
    return 1;
  }
  if (c == '\n') return 1;
  if (c >= '0' && c <= '7') {
    char32_t value = 0;
    std::size_t n = 0;
    while (n < 3 && n < text.size() && text[n] >= '0' && text[n] <= '7')
      value = value * 8 + static_cast<char32_t>(text[n++] - '0');
    append_code_point(out, value);
    return n;
  }
  const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits == 0) {
    if (c == 'N') template_syntax_error(line, "\\N{...} is not supported: write the character or its \\u escape");
    out += '\\';
    return 0;
  }
  const auto value = parse_hex(text.substr(1), digits);
  if (!value) template_syntax_error(line, std::string("truncated \\") + c + " escape");
  if (*value >= 0xd800 && *value < 0xe000) template_syntax_error(line, "a surrogate is not a character");
  append_code_point(out, *value);
  return 1 + digits;
}

/// The value of a string literal, given the text between its quotes.
std::string unescape_literal(std::string_view inside, int line) {
  std::string out;
  for (std::size_t i = 0; i < inside.size();) {
    if (inside[i] != '\\' || i + 1 == inside.size()) {
      out += inside[i++];
      continue;
    }
    i += 1 + append_escape(out, inside.substr(i + 1), line);
  }
  return out;
}

/// The length of the number literal at the start of `text`, 0 if there is none; stores its value in `value`.
std::size_t lex_number(std::string_view text, int line, PyValue& value) {
  if (text[0] < '0' || text[0] > '9') return 0;
  if (const std::size_t n = float_length(text)) {
    value = std::strtod(without_underscores(text.substr(0, n)).c_str(), nullptr);
    return n;
  }
  int base = 10;
  const std::size_t n = int_length(text, base);
  const auto parsed =
      py_parse_int(without_underscores(text.substr(base == 10 ? 0 : 2, n - (base == 10 ? 0 : 2))), base);
  if (!parsed) template_syntax_error(line, "number too large");
  value = *parsed;
  return n;
}

/// Converts line ends to \n and drops one at the very end.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<TemplateToken> run() {
    while (pos_ < source_.size()) lex_text();
    push(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(pos_); }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), {}, line_}); }

  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(pos_ + count), '\n'));
    pos_ += count;
    line_starting_ = count > 0 ? source_[pos_ - 1] == '\n' : line_starting_;
  }

  /// Offset of the next tag, or the end of the source.
  std::size_t next_tag() const {
    for (std::size_t at = source_.find('{', pos_); at != std::string::npos; at = source_.find('{', at + 1))
      if (at + 1 < source_.size() && std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos) return at;
    return source_.size();
  }

  /// The text before a tag after stripping by the tag's sign or lstrip_blocks.
  std::string_view text_before(std::string_view text, char sign, char tag) const {
    if (sign == '-') return py_strip(text, Ends::right);
    if (sign == '+' || tag == '{') return text;
    const std::size_t line = text.rfind('\n') + 1;
    if (line == 0 && !line_starting_) return text;
    return py_strip(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  void push_data(std::string_view text) {
    if (!text.empty()) push(TokenKind::data, std::string(text));
  }

  void lex_text() {
    const std::size_t tag = next_tag();
    const std::string_view text = std::string_view(source_).substr(pos_, tag - pos_);
    if (tag == source_.size()) {
      push_data(text);
      return advance(text.size());
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool signed_tag = sign == '-' || sign == '+';
    push_data(text_before(text, sign, kind));
    advance(text.size());
    if (kind == '%' && lex_raw()) return;
    advance(signed_tag ? 3 : 2);
    if (kind == '#') return lex_comment();
    lex_tag(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin);
  }

  /// Skips a tag's end `close` (such as "%}"), its sign, and the whitespace that these strip. trim_blocks drops a
  /// newline after blocks and comments.
  void advance_end(std::string_view close, char sign) {
    std::size_t end = pos_ + close.size() + (sign == '-' || sign == '+' ? 1 : 0);
    if (sign == '-') {
      const std::string_view behind = std::string_view(source_).substr(end);
      end += behind.size() - py_strip(behind, Ends::left).size();
    } else if (sign != '+' && close != "}}" && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    advance(end - pos_);
  }

  void lex_comment() {
    const std::size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) template_syntax_error(line_, "Missing end of comment tag");
    const char before = end > pos_ ? source_[end - 1] : '\0';
    const bool is_signed = before == '-' || before == '+';
    advance(end - pos_ - (is_signed ? 1 : 0));
    advance_end("#}", is_signed ? before : '\0');
  }

  /// Length of "{%- raw -%}" or similar at `pos_` with this word, 0 if there is none; `sign` is the sign at its end.
  std::size_t match_word_tag(std::size_t at, std::string_view word, char& sign) const {
    std::string_view text = std::string_view(source_).substr(at);
    const std::size_t whole = text.size();
    text.remove_prefix(2);
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    text = py_strip(text, Ends::left);
    if (!text.starts_with(word)) return 0;
    text = py_strip(text.substr(word.size()), Ends::left);
    sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? text[0] : '\0';
    if (!text.substr(sign ? 1 : 0).starts_with("%}")) return 0;
    return whole - text.size();  // up to the sign or the end
  }

  bool lex_raw() {
    char sign = '\0';
    const std::size_t head = match_word_tag(pos_, "raw", sign);
    if (head == 0 || sign == '+') return false;
    const int line = line_;
    advance(head);
    // The newline after {% raw %} stays: only '-' strips here.
    if (sign == '-')
      advance_end("%}", sign);
    else
      advance(2);
    for (std::size_t at = source_.find("{%", pos_); at != std::string::npos; at = source_.find("{%", at + 1)) {
      char end_sign = '\0';
      const std::size_t tail = match_word_tag(at, "endraw", end_sign);
      if (tail == 0) continue;
      push_data(text_before(std::string_view(source_).substr(pos_, at - pos_), source_[at + 2], '%'));
      advance(at + tail - pos_);
      advance_end("%}", end_sign);
      return true;
    }
    if (pos_ == source_.size()) return true;
    template_syntax_error(line, "Missing end of raw directive");
  }

  void lex_tag(TokenKind begin) {
    push(begin, "");
    const std::string_view close = begin == TokenKind::block_begin ? "%}" : "}}";
    std::string open;  // unclosed brackets
    while (pos_ < source_.size()) {
      const char c = source_[pos_];
      if (open.empty() && at_end(close, begin)) {
        push(begin == TokenKind::block_begin ? TokenKind::block_end : TokenKind::variable_end, "");
        return advance_end(close, c == close[0] ? '\0' : c);
      }
      lex_token(open);
    }
    push(TokenKind::end, "");
    template_syntax_error(line_, "unexpected end of template, expected '" + std::string(close) + "'");
  }

  bool at_end(std::string_view close, TokenKind begin) const {
    const std::string_view text = rest();
    const bool is_signed = text[0] == '-' || (text[0] == '+' && begin == TokenKind::block_begin);
    return text.starts_with(close) || (is_signed && text.substr(1).starts_with(close));
  }

  void lex_token(std::string& open) {
    const std::string_view text = rest();
    std::size_t space = text.size() - py_strip(text, Ends::left).size();
    if (space > 0) return advance(space);
    PyValue number;
    if (const std::size_t n = lex_number(text, line_, number)) {
      tokens_.push_back({TokenKind::number, std::string(text.substr(0, n)), number, line_});
      return advance(n);
    }
    if (lex_name(text) || lex_string(text)) return;
    lex_symbol(text, open);
  }

  bool lex_name(std::string_view text) {
    std::size_t pos = 0, end = 0;
    while (pos < text.size() && is_py_word(next_code_point(text, pos))) end = pos;
    if (end == 0) return false;
    std::size_t first = 0;
    if (is_py_digit(next_code_point(text, first))) template_syntax_error(line_, "Invalid character in identifier");
    push(TokenKind::name, std::string(text.substr(0, end)));
    advance(end);
    return true;
  }

  bool lex_string(std::string_view text) {
    const char quote = text[0];
    if (quote != '\'' && quote != '"') return false;
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (text[i] == '\\') {
        ++i;
      } else if (text[i] == quote) {
        push(TokenKind::string, unescape_literal(text.substr(1, i - 1), line_));
        advance(i + 1);
        return true;
      }
    }
    template_syntax_error(line_, "unterminated string");
  }

  void lex_symbol(std::string_view text, std::string& open) {
    static constexpr std::array<std::string_view, 26> symbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                 "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                 ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view s : symbols) {
      if (!text.starts_with(s)) continue;
      if (s == "(" || s == "[" || s == "{") open += s == "(" ? ')' : s == "[" ? ']' : '}';
      if (s == ")" || s == "]" || s == "}") {
        if (open.empty()) template_syntax_error(line_, "unexpected '" + std::string(s) + "'");
        if (open.back() != s[0])
          template_syntax_error(line_, "unexpected '" + std::string(s) + "', expected '" + open.back() + "'");
        open.pop_back();
      }
      push(TokenKind::symbol, std::string(s));
      return advance(s.size());
    }
    std::size_t end = 0;
    next_code_point(text, end);
    template_syntax_error(line_, "unexpected char " + py_quote(text.substr(0, end)));
  }

  std::string source_;
  std::vector<TemplateToken> tokens_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<TemplateToken> lex_template(std::string_view source) {
  if (source.size() > kMaxSource) template_syntax_error(1, "the template is larger than 4 MiB");
  return Lexer(normalize(source)).run();
}

}  // namespace qtrain
