#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace qtrain {

/// A Unicode regular expression (PCRE2, compiled to machine code where it can be) with the meaning that the tokenizers
/// library gives it. Matching is safe from several threads.
class Regex {
 public:
  /// Receives the bytes [begin, end) of a match.
  using OnMatch = std::function<void(std::size_t begin, std::size_t end)>;

  /// Errors (ErrorKind::input): not a valid expression, or a construct that is not supported.
  explicit Regex(const std::string& pattern);
  /// Calls f for each match in valid UTF-8 text, left to right; empty matches too, unless they touch the one before.
  /// Errors (ErrorKind::input): the match limit, so that no text makes an expression run for ever.
  void each_match(std::string_view text, const OnMatch& f) const;

 private:
  struct Code;
  class Matcher;
  std::shared_ptr<const Code> code_;
};

}  // namespace qtrain
