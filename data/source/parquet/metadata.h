#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/codecs.h"

namespace qtrain {

enum class ParquetType : std::uint8_t { boolean, int32, int64, int96, real32, real64, bytes, fixed_bytes };

/// The values of a leaf column as rows hold them.
enum class LeafKind : std::uint8_t { boolean, integer, unsigned_integer, real, text, json, unread };

/// A column, or a level of a nested one. A value's definition level says how many of the optional and repeated levels
/// around it are there, its repetition level at which repeated one it goes on.
struct ParquetNode {
  enum class Kind : std::uint8_t { leaf, group, list };
  std::string name;
  std::string type;  ///< for people: "list<struct<role: string, content: string>>"
  Kind kind = Kind::leaf;
  int definition = 0;                 ///< definition level from which on the value is not null
  int item_definition = 0;            ///< list: level from which on it has an item
  int repetition = 0;                 ///< list: level at which a further item begins
  std::size_t leaf = 0;               ///< leaf: index among all leaves; else the first one below that is read
  bool is_read = true;                ///< false: nothing below is read, and the row leaves it out
  std::vector<ParquetNode> children;  ///< list: one
};

struct ParquetLeaf {
  ParquetType type = ParquetType::bytes;
  LeafKind kind = LeafKind::unread;
  int bits = 64;  ///< of an unsigned integer
  int max_definition = 0, max_repetition = 0;
};

struct ParquetChunk {
  bool has_codec = false;  ///< whether the codec is one that is read
  Codec codec = Codec::none;
  std::int64_t codec_number = 0;
  std::int64_t values = 0;  ///< levels, nulls counted
  std::uint64_t begin = 0, size = 0;
};

struct ParquetRowGroup {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;            ///< of all columns, decompressed, as the writer says
  std::vector<ParquetChunk> chunks;  ///< of each leaf
};

struct ParquetFile {
  std::vector<ParquetNode> columns;
  std::vector<ParquetLeaf> leaves;
  std::vector<ParquetRowGroup> groups;
};

/// Reads the footer. Errors (ErrorKind::input, without a place): damaged, encrypted, rows that the bytes cannot hold.
ParquetFile read_parquet_metadata(std::string_view file);

/// Most values of a column that a file of so many bytes is believed to have: runs of equal ones take next to nothing,
/// but not all columns are of that kind.
constexpr std::uint64_t max_parquet_values(std::uint64_t file_size) {
  return file_size * 64;
}

}  // namespace qtrain
