#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/source/growth_limit.h"
#include "data/source/parquet/metadata.h"

namespace qtrain {

/// The levels and values of a leaf column in one row group. Values exist only where the definition level is at its
/// maximum; only the list for the leaf's kind is used.
struct LeafValues {
  std::vector<std::uint8_t> definition, repetition;   ///< per level entry; empty if the maximum level is 0
  std::vector<std::uint32_t> row_levels, row_values;  ///< start of each row, and one past the last
  std::vector<std::int64_t> integers;                 ///< also booleans; unsigned ones modulo 2^64
  std::vector<double> reals;
  std::vector<std::string_view> texts;
  std::vector<OwnedBytes> pages;  ///< pages that `texts` points into

  std::size_t levels() const { return row_levels.back(); }
};

/// A column chunk within its file.
struct LeafRequest {
  std::string_view file;
  const ParquetLeaf& leaf;
  const ParquetChunk& chunk;
  std::int64_t rows;
  GrowthLimit& memory;    ///< shared by all columns of the row group
  GrowthLimit& repeated;  ///< of values that come from dictionaries, counted once for each use
};

/// Decodes all pages of the chunk. Throws ErrorKind::input (without a place) for damaged pages, an unsupported codec or
/// encoding, or more data than `memory` and `repeated` allow.
LeafValues read_leaf(const LeafRequest& request);

}  // namespace qtrain
