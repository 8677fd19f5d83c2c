#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qtrain {

/// `optim_args`: "key=value, key=value", as transformers reads it. Errors: ErrorKind::usage, which name the key.
class OptimizerArguments {
 public:
  OptimizerArguments() = default;
  explicit OptimizerArguments(std::string_view text);

  /// "key=value, key=value" in the order of the keys, numbers in one form.
  std::string text() const;
  /// An error for keys that are not in this list; `optimizer` names it.
  void allow(std::string_view optimizer, std::span<const std::string_view> keys) const;
  /// A number, at least 0.
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key, bool otherwise) const;
  /// One of `choices`; the first without the key.
  std::string_view choice(std::string_view key, std::span<const std::string_view> choices) const;

 private:
  const std::string* find(std::string_view key) const;

  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace qtrain
