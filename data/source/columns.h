#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"
#include "data/source/row_text.h"

namespace qtrain {

/// Names under which rows keep what the program looks for.
struct ColumnMap {
  /// What the program calls a column -> what the rows call it: {"prompt": "question", "messages": "dialogue"}.
  std::map<std::string, std::string> columns;
  /// What the program calls a column -> texts that it is made of: the first one is taken whose columns all hold
  /// something, or the last.
  std::map<std::string, std::vector<RowText>> texts;
  /// The same for the keys of a message: {"role": "from", "content": "value"}.
  std::map<std::string, std::string> message_keys;
  /// A role as the template knows it, of the name that the rows give a speaker: {"human": "user"}.
  std::map<std::string, std::string> roles;

  /// Columns to keep, by the names that rows have; empty: all.
  std::vector<std::string> keep;

  bool empty() const {
    return columns.empty() && texts.empty() && message_keys.empty() && roles.empty() && keep.empty();
  }
  /// The row with the names that the program looks for. A column that loses its name to another one is left out.
  /// Errors (ErrorKind::input, without a place): a text whose columns the row does not have.
  Json renamed(Json row) const;

  bool operator==(const ColumnMap&) const = default;
};

/// Reads the members `column_mapping` (ours -> theirs, a text with {columns} in it, or a list of texts),
/// `message_property_mappings` (ours -> theirs) and `role_mapping` (ours -> theirs, one or a list) of an object; absent
/// or null ones are empty.
/// Errors (ErrorKind::usage): other types, one name of theirs for two of ours, a map that is written the wrong way
/// round: none of its names on our side are known, and all on theirs are.
ColumnMap read_column_map(const Json& settings);

/// An error (ErrorKind::usage) for names on our side that no row shape has; `text_field` is one more that has a
/// meaning.
void require_known_columns(const ColumnMap& map, std::string_view text_field);

/// Parts of a map that were not given for the rows at hand alone: these may have our names already.
struct SharedMaps {
  bool columns = false, message_keys = false;
};

class RawRows;
/// The map for these rows: of a shared one, without texts in whose place they have a column under our name.
/// An error (ErrorKind::input) where none of the first rows, as the files have them, has a column or a key of a message
/// that the map names, nor, where that is shared, our name for it.
ColumnMap map_for(ColumnMap map, const RawRows& rows, SharedMaps shared);

}  // namespace qtrain
