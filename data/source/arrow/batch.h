#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/source/arrow/column.h"
#include "data/source/codecs.h"
#include "data/source/growth_limit.h"

namespace qtrain {

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
/// Errors (ErrorKind::input, without a place): buffers that are too short or out of the body, a codec that is not read,
/// more than `memory` allows.
struct ArrowBatchReading {
  const std::vector<ArrowField>& fields;
  const ArrowBatchParts& parts;
  const ArrowDictionaries& dictionaries;
  GrowthLimit& memory;  ///< for what is decompressed
};
ArrowColumns read_arrow_columns(const ArrowBatchReading& in);

/// The rows that a batch says to have, if its bytes can hold them.
std::int64_t arrow_batch_rows(const ArrowBatchParts& parts);
/// About as many bytes as it has when it is decompressed.
std::uint64_t arrow_batch_bytes(const ArrowBatchParts& parts);

}  // namespace qtrain
