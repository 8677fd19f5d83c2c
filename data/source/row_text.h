#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// A text with columns of a row in it, "[INST] {instruction} [/INST]", as Python's str.format has them: {{ and }} are
/// braces.
class RowText {
 public:
  /// Whether a text has a column, or braces that would be one.
  static bool has_columns(std::string_view text);
  /// Errors (ErrorKind::usage, without a place): braces that do not match, a field that is no plain name.
  explicit RowText(std::string_view text);

  const std::vector<std::string>& columns() const { return columns_; }
  /// Whether the row has all columns, none of them null; `filled`: and none empty.
  bool fits(const Json& row) const;
  bool filled(const Json& row) const;
  /// The text for a row that it fits. Errors (ErrorKind::input): a column that holds neither text nor a number.
  std::string of(const Json& row) const;

  bool operator==(const RowText&) const = default;

 private:
  std::vector<std::string> between_ = {""};  ///< what stands before each column, and behind the last
  std::vector<std::string> columns_;
};

}  // namespace qtrain
