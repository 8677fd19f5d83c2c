#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/source/arrow/column.h"
#include "data/source/codecs.h"
#include "data/source/growth_limit.h"

namespace qtrain {

/// A RecordBatch table and the message body that it refers to.
struct ArrowBatchParts {
  FlatTable header;
  std::string_view body;
};

/// The columns of a batch, and the memory of decompressed buffers.
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
  GrowthLimit& memory;  ///< limits decompressed bytes
};
ArrowColumns read_arrow_columns(const ArrowBatchReading& in);

/// The number of rows that a batch states. Throws ErrorKind::input (without a place) if its bytes cannot hold them.
std::int64_t arrow_batch_rows(const ArrowBatchParts& parts);
/// Approximate number of bytes of the batch after decompression.
std::uint64_t arrow_batch_bytes(const ArrowBatchParts& parts);

}  // namespace qtrain
