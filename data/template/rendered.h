#pragma once
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace qtrain {

/// The text of a conversation.
struct Rendered {
  std::string text;
  /// Byte ranges [begin, end) of what the assistant says: the {% generation %} blocks, in order.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
  /// False if a block stood in a macro, `set` or `filter` block, so that its place in `text` is not known.
  bool ranges_known = true;
};

}  // namespace qtrain
