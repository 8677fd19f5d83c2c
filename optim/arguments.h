#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qtrain {

/// Parses `optim_args`, "key=value, key=value", as transformers does. Throws ErrorKind::usage, naming the key.
class OptimizerArguments {
 public:
  OptimizerArguments() = default;
  explicit OptimizerArguments(std::string_view text);

  /// "key=value, key=value" sorted by key, with numbers in canonical form.
  std::string text() const;
  /// Throws for keys that are not in this list; `optimizer` is its name for messages.
  void allow(std::string_view optimizer, std::span<const std::string_view> keys) const;
  /// The value of a key, a number that is at least 0.
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key, bool otherwise) const;
  /// One of `choices`; the first if the key is missing.
  std::string_view choice(std::string_view key, std::span<const std::string_view> choices) const;

 private:
  const std::string* find(std::string_view key) const;

  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace qtrain
