#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/codecs.h"

namespace qtrain {

enum class ParquetType : std::uint8_t { boolean, int32, int64, int96, real32, real64, bytes, fixed_bytes };

/// The type of a leaf column's values in rows.
enum class LeafKind : std::uint8_t { boolean, integer, unsigned_integer, real, text, json, unread };

/// A column, or a level of a nested one. The definition level of a value counts how many of its optional and repeated
/// ancestors are present; its repetition level says at which repeated ancestor it continues.
struct ParquetNode {
  enum class Kind : std::uint8_t { leaf, group, list };
  std::string name;
  std::string type;  ///< for messages: "list<struct<role: string, content: string>>"
  Kind kind = Kind::leaf;
  int definition = 0;                 ///< minimum definition level for a non-null value
  int item_definition = 0;            ///< list: minimum level for a non-empty list
  int repetition = 0;                 ///< list: level at which another item starts
  std::size_t leaf = 0;               ///< leaf: its index among all leaves; otherwise the first supported leaf below
  bool is_read = true;                ///< false: nothing below is supported, and rows omit it
  std::vector<ParquetNode> children;  ///< list: exactly one
};

struct ParquetLeaf {
  ParquetType type = ParquetType::bytes;
  LeafKind kind = LeafKind::unread;
  int bits = 64;  ///< width of an unsigned integer
  int max_definition = 0, max_repetition = 0;
};

struct ParquetChunk {
  bool has_codec = false;  ///< whether the codec is supported
  Codec codec = Codec::none;
  std::int64_t codec_number = 0;
  std::int64_t values = 0;  ///< number of levels, including nulls
  std::uint64_t begin = 0, size = 0;
};

struct ParquetRowGroup {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;            ///< decompressed size of all columns, as stated by the writer
  std::vector<ParquetChunk> chunks;  ///< per leaf
};

struct ParquetFile {
  std::vector<ParquetNode> columns;
  std::vector<ParquetLeaf> leaves;
  std::vector<ParquetRowGroup> groups;
};

/// Reads the footer. Throws ErrorKind::input (without a place) if it is damaged, encrypted, or states more rows than
/// the bytes can hold.
ParquetFile read_parquet_metadata(std::string_view file);

/// The largest plausible number of values in a column of a file of this size. Runs of equal values take almost no
/// space, but not all columns consist of them.
constexpr std::uint64_t max_parquet_values(std::uint64_t file_size) {
  return file_size * 64;
}

}  // namespace qtrain
