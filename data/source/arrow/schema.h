#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/source/arrow/flatbuffer.h"

namespace qtrain {

/// What the values of an Arrow column are read as.
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
  unread,  ///< binary, time, decimal, map, union, ...: left out of rows
};

struct ArrowField {
  std::string name;
  std::string type;  ///< for people: "list<struct<role: string, content: string>>"
  ArrowKind kind = ArrowKind::unread;
  int bits = 0;            ///< of an integer, a real, an offset of text or list
  bool is_signed = false;  ///< integers
  bool is_json = false;    ///< text that holds a JSON value, as `datasets` writes its Json feature
  bool has_validity = true;
  int buffers = 0;                         ///< beside validity
  bool has_blocks = false;                 ///< a view: further buffers, counted in each batch
  std::int64_t list_size = 0;              ///< fixed_list
  std::optional<std::int64_t> dictionary;  ///< values are indices into the dictionary of this id
  int index_bits = 0;
  bool index_signed = false;
  std::vector<ArrowField> children;

  /// The column as the dictionary's values are laid out.
  ArrowField of_values() const;
};

/// Top-level columns of a Schema table. Errors (ErrorKind::input, without a place): damaged, big-endian.
std::vector<ArrowField> read_arrow_schema(const FlatTable& schema);

/// Every field below that is dictionary-encoded, each as it is nested.
void dictionaries_of(const std::vector<ArrowField>& fields, std::vector<const ArrowField*>& out);

}  // namespace qtrain
