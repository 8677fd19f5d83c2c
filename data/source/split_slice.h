#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qtrain {

/// A split of a data set, or a range of its rows, in the syntax of the `datasets` library: "train", "train[:20%]",
/// "test[-5:]". Source: datasets 4, arrow_reader.py (ReadInstruction).
struct SplitSlice {
  std::string name;
  std::optional<std::int64_t> from = {}, to = {};  ///< negative: from the end
  enum class Unit : std::uint8_t { rows, percent, whole_percent } unit = Unit::rows;

  /// The range of rows [begin, end) out of `size`. Throws ErrorKind::usage (without a place) for whole percents of
  /// fewer than 100 rows.
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t size) const;
  bool is_whole() const { return !from && !to; }
};

/// The parts of "train[:10%]+test" in order; none for an empty text. Throws ErrorKind::usage (without a place) for
/// another form or more than 100 percent.
std::vector<SplitSlice> read_split(std::string_view text);

}  // namespace qtrain
