#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace qtrain {

/// Limits how many bytes a tokenizer's rules may add to a text. Unicode's largest decomposition turns 3 bytes into 33,
/// and ByteLevel doubles that; chained rules that multiply text would otherwise be unbounded.
class TextGrowth {
 public:
  explicit TextGrowth(std::size_t given) : given_(given), left_(kFree + kTimes * given) {}
  void add(std::size_t bytes) {
    if (bytes > left_)
      fail(ErrorKind::input,
           {.cause = "rules of the tokenizer add more than " + std::to_string(kFree + kTimes * given_) +
                     " bytes to a text of " + std::to_string(given_),
            .remedy = "a normalizer or pre-tokenizer in tokenizer.json multiplies text: check its Replace and Prepend "
                      "rules, or download the file again"});
    left_ -= bytes;
  }

 private:
  static constexpr std::size_t kFree = std::size_t{1} << 20, kTimes = 32;
  std::size_t given_, left_;
};

/// Text passing through a tokenizer, with the position of each byte in the original text.
struct TrackedText {
  std::string text;
  /// Source range of each byte; empty while `text` equals the source from `base` on.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> source = {};
  std::size_t base = 0;
  TextGrowth* growth = nullptr;  ///< null: unlimited

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

/// Builds a TrackedText from parts of another one.
class TrackedBuilder {
 public:
  explicit TrackedBuilder(const TrackedText& from) : from_(from) {
    out_.base = from.base;
    out_.growth = from.growth;
    out_.text.reserve(from.text.size() + from.text.size() / 4);
    out_.source.reserve(from.text.size() + from.text.size() / 4);
  }
  /// Appends bytes [begin, end) of the original unchanged.
  void keep(std::size_t begin, std::size_t end) {
    out_.text.append(from_.text, begin, end - begin);
    if (from_.source.empty()) {
      for (std::size_t i = begin; i < end; ++i) add({from_.base + i, from_.base + i + 1});
    } else {
      out_.source.insert(out_.source.end(), from_.source.begin() + static_cast<std::ptrdiff_t>(begin),
                         from_.source.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  /// Appends `text` in place of bytes [begin, end); an empty range for insertions.
  void replace(std::size_t begin, std::size_t end, std::string_view text) {
    if (from_.growth && text.size() > end - begin) from_.growth->add(text.size() - (end - begin));
    out_.text.append(text);
    const std::pair<std::size_t, std::size_t> at = begin < end ? from_.source_of(begin, end) : nothing_at(begin);
    for (std::size_t i = 0; i < text.size(); ++i) add(at);
  }
  std::size_t size() const { return out_.text.size(); }
  TrackedText take() { return std::move(out_); }

 private:
  // Like the library, takes the position of an insertion from the following character.
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
