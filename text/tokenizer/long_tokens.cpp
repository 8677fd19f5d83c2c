#include "text/tokenizer/long_tokens.h"

namespace qtrain {

void LongTokens::add(std::string_view content, std::int32_t number) {
  std::int32_t at = 0;
  for (std::size_t i = content.size(); i-- > 0;) {
    std::int32_t next = child_of(at, content[i]);
    if (next == 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[static_cast<std::size_t>(at)].child, .byte = content[i]});
      nodes_[static_cast<std::size_t>(at)].child = next;
    }
    at = next;
  }
  nodes_[static_cast<std::size_t>(at)].number = number;
}

// Visits nodes from short to long, so that the links of shorter ones are complete.
void LongTokens::finish() {
  std::vector<std::int32_t> order{0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int32_t parent = order[i];
    for (std::int32_t n = nodes_[static_cast<std::size_t>(parent)].child; n != 0;
         n = nodes_[static_cast<std::size_t>(n)].sibling) {
      Node& node = nodes_[static_cast<std::size_t>(n)];
      if (parent != 0) node.shorter = next_of(nodes_[static_cast<std::size_t>(parent)].shorter, node.byte);
      if (node.number < 0) node.number = nodes_[static_cast<std::size_t>(node.shorter)].number;
      order.push_back(n);
    }
  }
}

std::int32_t LongTokens::child_of(std::int32_t node, char byte) const {
  std::int32_t n = nodes_[static_cast<std::size_t>(node)].child;
  while (n != 0 && nodes_[static_cast<std::size_t>(n)].byte != byte) n = nodes_[static_cast<std::size_t>(n)].sibling;
  return n;
}

// The longest node that extends `node`, or one of its shorter beginnings, by a byte to the left.
std::int32_t LongTokens::next_of(std::int32_t node, char byte) const {
  for (;; node = nodes_[static_cast<std::size_t>(node)].shorter) {
    const std::int32_t next = child_of(node, byte);
    if (next != 0 || node == 0) return next;
  }
}

std::vector<std::int32_t> LongTokens::find(std::string_view text) const {
  std::vector<std::int32_t> found(text.size());
  std::int32_t at = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    at = next_of(at, text[i]);
    found[i] = nodes_[static_cast<std::size_t>(at)].number;
  }
  return found;
}

}  // namespace qtrain
