#include "emulator/ptx/tokens.h"

#include <charconv>
#include <utility>

#include "core/error.h"

namespace qtrain::emulation::ptx {
namespace {

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
         c == '$' || c == '%';
}

}  // namespace

Tokens::Tokens(std::string_view text, std::string name) : name_(std::move(name)) {
  int line = 1;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    const char c = text[at];
    if (c == '\n') ++line;
    if (c == '/' && text.substr(at, 2) == "//") {
      end = std::min(text.find('\n', at), text.size());
    } else if (c == '"') {
      end = std::min(text.find('"', end), text.size() - 1) + 1;
      all_.push_back({text.substr(at, end - at), line});
    } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      while (is_word(c) && end < text.size() && (is_word(text[end]) || text.substr(end, 2) == "::"))
        end += is_word(text[end]) ? 1 : 2;
      all_.push_back({text.substr(at, end - at), line});
    }
    at = end;
  }
}

std::string_view Tokens::take() {
  if (at_end()) refuse("unexpected end of text within a statement");
  return all_[next_++].text;
}
bool Tokens::take_if(std::string_view text) {
  if (peek() != text) return false;
  ++next_;
  return true;
}
void Tokens::expect(std::string_view text) {
  if (const std::string_view found = take(); found != text)
    refuse("expected '" + std::string(text) + "', found '" + std::string(found) + "'");
}
std::int64_t Tokens::number() {
  const bool negative = take_if("-");
  const auto bits = static_cast<std::int64_t>(immediate(take(), *this));
  return negative ? -bits : bits;
}
void Tokens::skip_line() {
  const int line = all_[next_ - 1].line;
  while (!at_end() && all_[next_].line == line) ++next_;
}
void Tokens::skip_past(std::string_view text) {
  while (take() != text) {
  }
}

void Tokens::refuse(const std::string& why) const {
  const int line = all_.empty() ? 1 : all_[next_ > 0 ? next_ - 1 : 0].line;
  fail(ErrorKind::input, {.cause = "PTX: " + why, .place = name_ + ":" + std::to_string(line)});
}

std::uint64_t immediate(std::string_view text, const Tokens& tokens) {
  int base = 10;
  std::string_view digits = text;
  if (text.size() > 2 && text[0] == '0') {
    base = text[1] == 'f' || text[1] == 'F' || text[1] == 'd' || text[1] == 'D' || text[1] == 'x' || text[1] == 'X'
               ? 16
               : 10;
    if (base == 16) digits.remove_prefix(2);
  }
  if (digits.ends_with('U')) digits.remove_suffix(1);
  std::uint64_t bits = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, base);
  if (error != std::errc{} || end != digits.data() + digits.size())
    tokens.refuse("'" + std::string(text) + "' is neither a name nor a number");
  return bits;
}

}  // namespace qtrain::emulation::ptx
