#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"
#include "data/source/row_text.h"

namespace qtrain {

/// Maps the column names of rows to the names that the program expects.
struct ColumnMap {
  /// Our column name -> theirs: {"prompt": "question", "messages": "dialogue"}.
  std::map<std::string, std::string> columns;
  /// Our column name -> templates to build it from: uses the first one whose columns are all non-empty, or else the
  /// last.
  std::map<std::string, std::vector<RowText>> texts;
  /// Likewise for the keys of a message: {"role": "from", "content": "value"}.
  std::map<std::string, std::string> message_keys;
  /// Their name of a speaker -> the template's role: {"human": "user"}.
  std::map<std::string, std::string> roles;

  /// Columns to keep, by their names; empty: all.
  std::vector<std::string> keep;

  bool empty() const {
    return columns.empty() && texts.empty() && message_keys.empty() && roles.empty() && keep.empty();
  }
  /// The row with our names. A column whose name is taken over by another column is dropped. Throws ErrorKind::input
  /// (without a place) if the row lacks the columns of a template.
  Json renamed(Json row) const;

  bool operator==(const ColumnMap&) const = default;
};

/// Reads `column_mapping` (ours -> theirs, a template with {columns}, or a list of templates),
/// `message_property_mappings` (ours -> theirs) and `role_mapping` (ours -> theirs, one or a list) from an object;
/// absent or null ones are empty. Throws ErrorKind::usage for wrong types, one of their names used for two of ours, and
/// a map written the wrong way around: none of the names on our side are known, but all on their side are.
ColumnMap read_column_map(const Json& settings);

/// Throws ErrorKind::usage for names on our side that no row shape uses; `text_field` is valid too.
void require_known_columns(const ColumnMap& map, std::string_view text_field);

/// Parts of a map that apply to several sources: some of these may already use our names.
struct SharedMaps {
  bool columns = false, message_keys = false;
};

class RawRows;
/// The map for these rows: a shared one without the templates for which the rows already have a column of our name.
/// Throws ErrorKind::input if none of the first rows, before mapping, has a column or message key that the map names,
/// nor (for a shared map) our name for it.
ColumnMap map_for(ColumnMap map, const RawRows& rows, SharedMaps shared);

}  // namespace qtrain
