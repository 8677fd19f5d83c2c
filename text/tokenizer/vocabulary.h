#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/flat_tables.h"
#include "text/tokenizer/model.h"

namespace qtrain {

/// Tokens as named in the file, with their ids.
class Vocabulary {
 public:
  /// Throws ErrorKind::input for ids that are out of range or far above the number of tokens.
  explicit Vocabulary(const std::vector<std::pair<std::string_view, std::int64_t>>& entries);

  std::int32_t count() const { return count_; }
  std::int32_t end_id() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Returns -1 if absent.
  std::int32_t find(std::string_view token) const { return ids_.find(token); }
  std::optional<std::string_view> token(std::int32_t id) const {
    if (id < 0 || id >= end_id() || !known_[static_cast<std::size_t>(id)]) return std::nullopt;
    return tokens_[static_cast<std::size_t>(id)];
  }
  /// Finds the token of a byte: "<0x0A>" for 10.
  std::int32_t find_byte(unsigned char byte) const;

 private:
  StringIds ids_;
  std::vector<std::string> tokens_;
  std::vector<bool> known_;
  std::int32_t count_ = 0;
};

}  // namespace qtrain
