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

/// The contents of an Arrow IPC file or stream.
struct ArrowMessages {
  FlatTable schema;
  std::vector<ArrowMessage> rest;  ///< dictionaries and record batches, in the order in which they take effect
  bool has_footer = false;         ///< the text is a file: its dictionaries apply to all record batches
};

/// Reads a file by its footer, as pyarrow does (polars writes no schema at the beginning), and a stream message by
/// message; a file without a footer is read like a stream. The messages are views of `text`. Throws ErrorKind::input
/// (without a place) for damaged or truncated data.
ArrowMessages read_arrow_messages(std::string_view text);

/// Throws ErrorKind::input (without a place) with this reason unless `fine`.
void require_arrow(bool fine, const char* why);

}  // namespace qtrain
