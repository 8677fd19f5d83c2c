#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/source/parquet/metadata.h"

namespace qtrain {

/// An element of the flattened schema in the footer.
struct SchemaElement {
  std::int64_t type = -1, repetition = 0, children = 0, converted = -1;
  int logical = 0;  ///< member of the union LogicalType; 0: none
  bool is_signed = true;
  int bits = 0;
  bool has_children = false;
  std::string_view name;
};

/// Builds columns and leaves from the footer's depth-first list.
void build_parquet_schema(const std::vector<SchemaElement>& elements, ParquetFile& file);

}  // namespace qtrain
