#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/source/arrow/flatbuffer.h"

namespace qtrain {

enum ArrowMessageKind : std::uint8_t { kSchemaMessage = 1, kDictionaryMessage = 2, kBatchMessage = 3 };

struct ArrowMessage {
  std::uint8_t kind = 0;
  FlatTable header;
  std::string_view body;
};

/// What an Arrow IPC file or stream holds.
struct ArrowMessages {
  FlatTable schema;
  std::vector<ArrowMessage> rest;  ///< dictionaries and record batches in the order in which they count
  bool has_footer = false;         ///< it is a file, whose dictionaries count for all record batches
};

/// Reads a file by its footer, as pyarrow does (polars writes no schema at the beginning), and a stream message by
/// message; a file that has no footer is read like a stream. The messages lie in `text`.
/// Errors (ErrorKind::input, without a place): damaged, cut short.
ArrowMessages read_arrow_messages(std::string_view text);

/// An input error (without a place) that says what is wrong with an Arrow file.
void require_arrow(bool fine, const char* why);

}  // namespace qtrain
