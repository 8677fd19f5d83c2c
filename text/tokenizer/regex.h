#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace qtrain {

/// A Unicode regular expression with the semantics of the tokenizers library (PCRE2, JIT-compiled where possible).
/// Matching is thread-safe.
class Regex {
 public:
  /// Receives the byte range [begin, end) of a match.
  using OnMatch = std::function<void(std::size_t begin, std::size_t end)>;

  /// Throws ErrorKind::input for an invalid expression or an unsupported construct.
  explicit Regex(const std::string& pattern);
  /// Calls f for each match in valid UTF-8 text, from left to right, including empty matches unless they touch the
  /// previous one. Throws ErrorKind::input beyond limits of a match and of a text, so that none makes an expression run
  /// forever.
  void each_match(std::string_view text, const OnMatch& f) const;

 private:
  struct Code;
  class Matcher;
  std::shared_ptr<const Code> code_;
};

}  // namespace qtrain
