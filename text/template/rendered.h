#pragma once
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace qtrain {

/// Byte ranges [begin, end) of a text, in order.
using TextRanges = std::vector<std::pair<std::size_t, std::size_t>>;

/// A rendered conversation.
struct Rendered {
  std::string text;
  TextRanges generated;  ///< the assistant's text: contents of {% generation %} blocks
  /// False if a block was inside a macro, `set` or `filter` block, so that its position in `text` is unknown.
  bool ranges_known = true;
  /// Why the assistant's text cannot be located in a template without blocks; empty if it can.
  std::string unplaced = {};
};

}  // namespace qtrain
