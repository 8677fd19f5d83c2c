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

/// The values that indices stand for, in the parts in which the file adds them. It may grow behind `length`.
struct ArrowDictionary {
  struct Parts {
    std::vector<std::shared_ptr<const ArrowColumn>> columns;
    std::vector<std::int64_t> ends;  // the number of values up to the end of each

    void add(std::shared_ptr<const ArrowColumn> column);
  };
  std::shared_ptr<Parts> parts;
  std::int64_t length = 0;
};
using ArrowDictionaries = std::map<std::int64_t, ArrowDictionary>;

/// A column of a record batch: views of its buffers, which are known to be as long as the layout asks.
struct ArrowColumn {
  const ArrowField* field = nullptr;
  std::int64_t length = 0;
  std::string_view validity;             // a bit per value; empty: none is null
  std::string_view values;               // numbers, bits, characters, views or indices
  std::string_view offsets;              // length + 1 of them, but none where length is 0
  std::vector<std::string_view> blocks;  // of characters behind views
  std::vector<ArrowColumn> children;
  ArrowDictionary dictionary;
};

/// Value `i` (below the length), children and dictionaries followed.
/// Errors (ErrorKind::input, without a place): offsets and indices out of range, text that is not UTF-8.
Json arrow_value(const ArrowColumn& column, std::int64_t i);

}  // namespace qtrain
