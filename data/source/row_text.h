#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// A template with columns of a row, "[INST] {instruction} [/INST]", in the syntax of Python's str.format: {{ and }}
/// are literal braces.
class RowText {
 public:
  /// Whether a text contains braces.
  static bool has_columns(std::string_view text);
  /// Throws ErrorKind::usage (without a place) for unbalanced braces and for fields that are not plain names.
  explicit RowText(std::string_view text);

  const std::vector<std::string>& columns() const { return columns_; }
  /// fits: whether the row has all columns, none of them null. filled: and none of them empty.
  bool fits(const Json& row) const;
  bool filled(const Json& row) const;
  /// The text for a row that it fits. Throws ErrorKind::input if a column is neither text nor a number.
  std::string of(const Json& row) const;

  bool operator==(const RowText&) const = default;

 private:
  std::vector<std::string> between_ = {""};  ///< text before each column, and after the last
  std::vector<std::string> columns_;
};

}  // namespace qtrain
