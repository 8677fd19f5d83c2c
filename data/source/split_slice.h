#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qtrain {

/// A split of a data set, or a stretch of its rows, as the `datasets` library writes it: "train", "train[:20%]",
/// "test[-5:]". Source: datasets 4, arrow_reader.py (ReadInstruction).
struct SplitSlice {
  std::string name;
  std::optional<std::int64_t> from = {}, to = {};  ///< counted from the end where negative
  enum class Unit : std::uint8_t { rows, percent, whole_percent } unit = Unit::rows;

  /// Which of so many rows it is: [begin, end). Errors (ErrorKind::usage, without a place): whole percents of fewer
  /// than 100 rows.
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t size) const;
  bool is_whole() const { return !from && !to; }
};

/// The parts of "train[:10%]+test", one behind the other; none for an empty text.
/// Errors (ErrorKind::usage, without a place): another form, more than 100 percent.
std::vector<SplitSlice> read_split(std::string_view text);

}  // namespace qtrain
