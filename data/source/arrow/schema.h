#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/source/arrow/flatbuffer.h"

namespace qtrain {

/// The kinds of values that Arrow columns are read as.
enum class ArrowKind : std::uint8_t {
  null,
  boolean,
  integer,
  real,
  text,
  text_view,
  list,
  fixed_list,
  structure,
  unread,  ///< binary, time, decimal, map, union, ...: rows omit these
};

struct ArrowField {
  std::string name;
  std::string type;  ///< for messages: "list<struct<role: string, content: string>>"
  ArrowKind kind = ArrowKind::unread;
  int bits = 0;            ///< width of an integer or float, or of the offsets of text or a list
  bool is_signed = false;  ///< integers
  bool is_json = false;    ///< text that holds a JSON value, as `datasets` writes its Json feature
  bool has_validity = true;
  int buffers = 0;                         ///< not counting validity
  bool has_blocks = false;                 ///< a view type: has further buffers, whose number each batch states
  std::int64_t list_size = 0;              ///< fixed_list
  std::optional<std::int64_t> dictionary;  ///< the id of the dictionary that the values index
  int index_bits = 0;
  bool index_signed = false;
  std::vector<ArrowField> children;

  /// The field with the layout of the dictionary's values.
  ArrowField of_values() const;
};

/// Reads the top-level columns of a Schema table. Throws ErrorKind::input (without a place) for a damaged schema and
/// for big-endian data.
std::vector<ArrowField> read_arrow_schema(const FlatTable& schema);

/// Appends every dictionary-encoded field at any depth, in the order of nesting.
void dictionaries_of(const std::vector<ArrowField>& fields, std::vector<const ArrowField*>& out);

}  // namespace qtrain
