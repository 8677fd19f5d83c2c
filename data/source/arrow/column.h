#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "data/source/arrow/schema.h"
#include "data/source/codecs.h"

namespace qtrain {

/// A column of a record batch: views of its buffers, which are known to be as long as the layout asks.
struct ArrowColumn {
  const ArrowField* field = nullptr;
  std::int64_t length = 0;
  std::string_view validity;             // a bit per value; empty: none is null
  std::string_view values;               // numbers, bits, characters, views or indices
  std::string_view offsets;              // length + 1 of them, but none where length is 0
  std::vector<std::string_view> blocks;  // of characters behind views
  std::vector<ArrowColumn> children;
  std::shared_ptr<const ArrowColumn> dictionary;
};

using ArrowDictionaries = std::map<std::int64_t, std::shared_ptr<const ArrowColumn>>;

/// Value `i` (below the length), children and dictionaries followed.
/// Errors (ErrorKind::input, without a place): offsets and indices out of range, text that is not UTF-8.
Json arrow_value(const ArrowColumn& column, std::int64_t i);

/// A RecordBatch table and the bytes behind it.
struct ArrowBatchParts {
  FlatTable header;
  std::string_view body;
};

/// The columns of a batch, and what was decompressed for them.
struct ArrowColumns {
  std::int64_t rows = 0;
  std::vector<ArrowColumn> columns;
  std::vector<OwnedBytes> made;
};

/// Lays the fields over the batch; they must outlive it.
/// Errors (ErrorKind::input, without a place): buffers that are too short or out of the body, a codec that is not read.
ArrowColumns read_arrow_columns(const std::vector<ArrowField>& fields, const ArrowBatchParts& parts,
                                const ArrowDictionaries& dictionaries);

/// The rows that a batch says to have, if its bytes can hold them.
std::int64_t arrow_batch_rows(const ArrowBatchParts& parts);
/// About as many bytes as it has when it is decompressed.
std::uint64_t arrow_batch_bytes(const ArrowBatchParts& parts);

}  // namespace qtrain
