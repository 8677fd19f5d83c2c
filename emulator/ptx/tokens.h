#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::emulation::ptx {

struct Token {
  std::string_view text;
  int line;
};

/// The words and signs of PTX, one after the other.
class Tokens {
 public:
  /// `name`: what errors call the text.
  Tokens(std::string_view text, std::string name);

  bool at_end() const { return next_ == all_.size(); }
  /// The token that take() gives, empty at the end; and the one after it.
  std::string_view peek() const { return at_end() ? std::string_view{} : all_[next_].text; }
  std::string_view peek_second() const { return next_ + 1 < all_.size() ? all_[next_ + 1].text : std::string_view{}; }
  std::string_view take();
  bool take_if(std::string_view text);
  void expect(std::string_view text);
  std::int64_t number();
  void skip_line();
  void skip_past(std::string_view text);

  /// An Error about the line of the token last taken.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  std::string name_;
  std::vector<Token> all_;
  std::size_t next_ = 0;
};

/// The bits of an immediate value: a decimal or hexadecimal integer, 0f3F800000, 0d3FF0000000000000.
std::uint64_t immediate(std::string_view text, const Tokens& tokens);

}  // namespace qtrain::emulation::ptx
