#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qtrain {

/// Text on its way through a tokenizer, and where each of its bytes came from in the text that was given.
struct TrackedText {
  std::string text;
  /// Source range of each byte; empty while text is the source from `base` on, byte for byte.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> source;
  std::size_t base = 0;

  std::pair<std::size_t, std::size_t> source_of(std::size_t begin, std::size_t end) const {
    if (source.empty()) return {base + begin, base + end};
    if (begin >= end) return {base, base};
    return {source[begin].first, source[end - 1].second};
  }
};

/// Builds a TrackedText from pieces of another one.
class TrackedBuilder {
 public:
  explicit TrackedBuilder(const TrackedText& from) : from_(from) { out_.base = from.base; }
  /// Bytes [begin, end) of the original, unchanged.
  void keep(std::size_t begin, std::size_t end) {
    out_.text.append(from_.text, begin, end - begin);
    for (std::size_t i = begin; i < end; ++i) add(from_.source_of(i, i + 1));
  }
  /// `text` in place of bytes [begin, end); an empty range for something that was not there.
  void replace(std::size_t begin, std::size_t end, std::string_view text) {
    out_.text.append(text);
    std::pair<std::size_t, std::size_t> at = from_.source_of(begin, end);
    if (begin >= end) {
      const std::size_t where = begin < from_.text.size() ? from_.source_of(begin, begin + 1).first
                                : begin > 0               ? from_.source_of(begin - 1, begin).second
                                                          : from_.base;
      at = {where, where};
    }
    for (std::size_t i = 0; i < text.size(); ++i) add(at);
  }
  std::size_t size() const { return out_.text.size(); }
  TrackedText take() { return std::move(out_); }

 private:
  void add(std::pair<std::size_t, std::size_t> range) {
    out_.source.emplace_back(static_cast<std::uint32_t>(range.first), static_cast<std::uint32_t>(range.second));
  }
  const TrackedText& from_;
  TrackedText out_;
};

/// A pre-token: bytes [begin, end) of the text.
struct Piece {
  std::size_t begin = 0, end = 0;
};

}  // namespace qtrain
