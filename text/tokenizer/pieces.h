#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace qtrain {

/// How many bytes the rules of a tokenizer may add to a text. The largest decomposition of Unicode makes 33 bytes of 3,
/// and ByteLevel twice that; rules that multiply text, one after the other, would have no end.
class TextGrowth {
 public:
  explicit TextGrowth(std::size_t given) : given_(given), left_(kFree + kTimes * given) {}
  void add(std::size_t bytes) {
    if (bytes > left_)
      fail(ErrorKind::input,
           {.cause = "rules of the tokenizer add more than " + std::to_string(kFree + kTimes * given_) +
                     " bytes to a text of " + std::to_string(given_),
            .remedy = "a normalizer or pre-tokenizer in tokenizer.json multiplies text: look at its "
                      "Replace and Prepend rules, or fetch the file again"});
    left_ -= bytes;
  }

 private:
  static constexpr std::size_t kFree = std::size_t{1} << 20, kTimes = 32;
  std::size_t given_, left_;
};

/// Text on its way through a tokenizer, and where each of its bytes came from in the text that was given.
struct TrackedText {
  std::string text;
  /// Source range of each byte; empty while text is the source from `base` on, byte for byte.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> source = {};
  std::size_t base = 0;
  TextGrowth* growth = nullptr;  ///< null: without a limit

  std::pair<std::size_t, std::size_t> source_of(std::size_t begin, std::size_t end) const {
    if (source.empty()) return {base + begin, base + end};
    if (begin >= end) return {base, base};
    return {source[begin].first, source[end - 1].second};
  }
  /// Bytes [begin, end) with their sources.
  TrackedText part(std::size_t begin, std::size_t end) const {
    if (source.empty()) return {.text = text.substr(begin, end - begin), .base = base + begin, .growth = growth};
    return {.text = text.substr(begin, end - begin),
            .source = {source.begin() + static_cast<std::ptrdiff_t>(begin),
                       source.begin() + static_cast<std::ptrdiff_t>(end)},
            .base = base,
            .growth = growth};
  }
};

/// Builds a TrackedText from pieces of another one.
class TrackedBuilder {
 public:
  explicit TrackedBuilder(const TrackedText& from) : from_(from) {
    out_.base = from.base;
    out_.growth = from.growth;
    out_.text.reserve(from.text.size() + from.text.size() / 4);
    out_.source.reserve(from.text.size() + from.text.size() / 4);
  }
  /// Bytes [begin, end) of the original, unchanged.
  void keep(std::size_t begin, std::size_t end) {
    out_.text.append(from_.text, begin, end - begin);
    if (from_.source.empty()) {
      for (std::size_t i = begin; i < end; ++i) add({from_.base + i, from_.base + i + 1});
    } else {
      out_.source.insert(out_.source.end(), from_.source.begin() + static_cast<std::ptrdiff_t>(begin),
                         from_.source.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  /// `text` in place of bytes [begin, end); an empty range for something that was not there.
  void replace(std::size_t begin, std::size_t end, std::string_view text) {
    if (from_.growth && text.size() > end - begin) from_.growth->add(text.size() - (end - begin));
    out_.text.append(text);
    const std::pair<std::size_t, std::size_t> at = begin < end ? from_.source_of(begin, end) : nothing_at(begin);
    for (std::size_t i = 0; i < text.size(); ++i) add(at);
  }
  std::size_t size() const { return out_.text.size(); }
  TrackedText take() { return std::move(out_); }

 private:
  // As in the library, what was not there takes its place from the character behind it.
  std::pair<std::size_t, std::size_t> nothing_at(std::size_t at) const {
    std::size_t end = at;
    if (end < from_.text.size()) ++end;
    while (end < from_.text.size() && (static_cast<unsigned char>(from_.text[end]) & 0xC0) == 0x80) ++end;
    return from_.source_of(at, end);
  }
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
