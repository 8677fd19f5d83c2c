#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/formats/json.h"
#include "data/source/arrow/schema.h"

namespace qtrain {

struct ArrowColumn;

/// The values of a dictionary, in the parts that the file adds one by one. Later batches may add parts after the first
/// `length` values.
struct ArrowDictionary {
  struct Parts {
    std::vector<std::shared_ptr<const ArrowColumn>> columns;
    std::vector<std::int64_t> ends;    // for each part, the number of values up to its end
    std::vector<std::uint32_t> sizes;  // of each value, as value_size() counts

    void add(std::shared_ptr<const ArrowColumn> column);
  };
  std::shared_ptr<Parts> parts;
  std::int64_t length = 0;
};
using ArrowDictionaries = std::map<std::int64_t, ArrowDictionary>;

/// A column of a record batch as views of its buffers, which are known to be long enough for the layout.
struct ArrowColumn {
  const ArrowField* field = nullptr;
  std::int64_t length = 0;
  std::string_view validity;             // one bit per value; empty if no value is null
  std::string_view values;               // numbers, bits, characters, views or indices
  std::string_view offsets;              // length + 1 offsets; may be empty if length is 0
  std::vector<std::string_view> blocks;  // characters that views refer to
  std::vector<ArrowColumn> children;
  ArrowDictionary dictionary;
};

/// Approximate number of bytes of value `i` < length, with nested values and dictionary values. What is out of range
/// counts as nothing.
std::uint64_t value_size(const ArrowColumn& column, std::int64_t i);

/// Bytes that the values of a column and of its children share with others: uses of dictionary values, and views.
std::uint64_t repeated_bytes(const ArrowColumn& column);

/// Value `i` < length, with nested values and dictionary values resolved. Throws ErrorKind::input (without a place) for
/// offsets and indices out of range and for text that is not UTF-8.
Json arrow_value(const ArrowColumn& column, std::int64_t i);

}  // namespace qtrain
