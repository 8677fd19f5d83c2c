#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/source/growth_limit.h"
#include "data/source/parquet/metadata.h"

namespace qtrain {

/// The levels and values of a leaf column in one row group. Values are only there where the definition level is the
/// highest; of the lists of values the one of the leaf's kind is used.
struct LeafValues {
  std::vector<std::uint8_t> definition, repetition;   ///< of every level entry; empty where the highest level is 0
  std::vector<std::uint32_t> row_levels, row_values;  ///< where each row begins, and one behind the last
  std::vector<std::int64_t> integers;                 ///< booleans too; unsigned ones modulo 2^64
  std::vector<double> reals;
  std::vector<std::string_view> texts;
  std::vector<OwnedBytes> pages;  ///< that texts point into

  std::size_t levels() const { return row_levels.back(); }
};

/// A column chunk within its file.
struct LeafRequest {
  std::string_view file;
  const ParquetLeaf& leaf;
  const ParquetChunk& chunk;
  std::int64_t rows;
  GrowthLimit& memory;  ///< of all columns of the row group
};

/// Decodes all pages of the chunk.
/// Errors (ErrorKind::input, without a place): damaged pages, a codec or an encoding that is not read, more than
/// `memory` allows.
LeafValues read_leaf(const LeafRequest& request);

}  // namespace qtrain
