#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/json.h"

namespace qtrain {

/// Names under which rows keep what the program looks for.
struct ColumnMap {
  /// What the program calls a column -> what the rows call it: {"prompt": "question", "messages": "dialogue"}.
  std::map<std::string, std::string> columns;
  /// The same for the keys of a message: {"role": "from", "content": "value"}.
  std::map<std::string, std::string> message_keys;
  /// A role as the template knows it, of the name that the rows give a speaker: {"human": "user"}.
  std::map<std::string, std::string> roles;

  /// Columns to keep, by the names that rows have; empty: all.
  std::vector<std::string> keep;

  bool empty() const { return columns.empty() && message_keys.empty() && roles.empty() && keep.empty(); }
  /// The row with the names that the program looks for. A column that loses its name to another one is left out.
  Json renamed(Json row) const;

  bool operator==(const ColumnMap&) const = default;
};

/// Reads the members `column_mapping`, `message_property_mappings` (each ours -> theirs) and `role_mapping` (ours ->
/// theirs, one or a list) of an object; absent or null ones are empty.
/// Errors (ErrorKind::usage): other types, one name of theirs for two of ours.
ColumnMap read_column_map(const Json& settings);

}  // namespace qtrain
