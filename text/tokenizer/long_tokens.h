#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace qtrain {

/// Finds long tokens in a text in linear time, even if many of them begin alike (Aho and Corasick, 1975). The automaton
/// reads tokens and text backwards, so that one pass finds the longest token that begins at each byte.
class LongTokens {
 public:
  /// Adds a token that is not empty; `number` is not negative. Call `finish` after the last one.
  void add(std::string_view content, std::int32_t number);
  void finish();
  bool empty() const { return nodes_.size() == 1; }
  /// Returns, for each byte of the text, the number of the longest token that begins there, or -1.
  std::vector<std::int32_t> find(std::string_view text) const;

 private:
  // A node of the tree of token endings. The children of a node form a list.
  struct Node {
    std::int32_t child = 0, sibling = 0;
    std::int32_t shorter = 0;  // the longest other node whose text this one begins with
    std::int32_t number = -1;  // of the longest token that this text begins with
    char byte = 0;
  };
  std::int32_t child_of(std::int32_t node, char byte) const;
  std::int32_t next_of(std::int32_t node, char byte) const;

  std::vector<Node> nodes_{1};  // the first one is the root, the empty end
};

}  // namespace qtrain
