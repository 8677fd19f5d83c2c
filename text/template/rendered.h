#pragma once
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace qtrain {

/// Byte ranges [begin, end) of a text, in order.
using TextRanges = std::vector<std::pair<std::size_t, std::size_t>>;

/// The text of a conversation.
struct Rendered {
  std::string text;
  TextRanges generated;  ///< what the assistant says: the {% generation %} blocks
  /// False if a block stood in a macro, `set` or `filter` block, so that its place in `text` is not known.
  bool ranges_known = true;
  /// Why it cannot be told where the assistant speaks, in a template without blocks; empty if it can.
  std::string unplaced = {};
};

}  // namespace qtrain
