#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace qtrain {

/// A Unicode regular expression (PCRE2, compiled to machine code) with the meaning that the tokenizers library gives it.
/// Matching is safe from several threads.
class Regex {
 public:
  /// Errors (ErrorKind::input): not a valid expression.
  explicit Regex(const std::string& pattern);
  /// Calls f(begin, end) for each match in valid UTF-8 text, left to right. Errors (ErrorKind::input): match limits.
  void each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& f) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string pattern_;
};

}  // namespace qtrain
