#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::emulation::ptx {

struct Token {
  std::string_view text;
  int line;
};

/// Tokenizer for PTX.
class Tokens {
 public:
  /// `name`: the name of the text for errors.
  Tokens(std::string_view text, std::string name);

  bool at_end() const { return next_ == all_.size(); }
  /// The next token, and the one after it; empty at the end.
  std::string_view peek() const { return at_end() ? std::string_view{} : all_[next_].text; }
  std::string_view peek_second() const { return next_ + 1 < all_.size() ? all_[next_ + 1].text : std::string_view{}; }
  std::string_view take();
  bool take_if(std::string_view text);
  void expect(std::string_view text);
  std::int64_t number();
  void skip_line();
  void skip_past(std::string_view text);

  /// Throws an Error that names the line of the last token taken.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  std::string name_;
  std::vector<Token> all_;
  std::size_t next_ = 0;
};

/// The bits of an immediate: a decimal or hexadecimal integer, 0f3F800000, 0d3FF0000000000000.
std::uint64_t immediate(std::string_view text, const Tokens& tokens);

}  // namespace qtrain::emulation::ptx
