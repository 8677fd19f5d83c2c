#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace qtrain {

/// How several documents share one training row; the strategies of TRL's pack_dataset.
enum class Packing : std::uint8_t {
  none,
  bfd,        ///< best fit decreasing; what exceeds the row is cut off
  bfd_split,  ///< best fit decreasing; what exceeds the row becomes documents of their own
  wrapped,    ///< documents concatenated, cut every `row_length` tokens
  blocks,     ///< the same, without the last row where it is not full, as LLaMA-Factory does (not in TRL)
};

/// What becomes of a row that is longer than a training row may be.
enum class TooLong : std::uint8_t {
  keep_start,
  keep_end,      ///< without packing
  keep_answers,  ///< turn by turn questions are cut before answers are, as LLaMA-Factory does
  drop,          ///< the row is left out, and counted
  raise,         ///< an error
};

/// Whether documents are concatenated and cut wherever a row is full.
constexpr bool is_one_text(Packing packing) {
  return packing == Packing::wrapped || packing == Packing::blocks;
}

/// Part of a document: tokens [begin, begin + size) of document `document`.
struct DocumentSlice {
  std::int64_t document = 0;
  std::int32_t begin = 0;
  std::int32_t size = 0;
  friend bool operator==(const DocumentSlice&, const DocumentSlice&) = default;
};

/// Rows of slices, concatenated.
struct PackedRows {
  std::vector<DocumentSlice> slices;
  std::vector<std::int64_t> ends;  ///< of each row, in `slices`

  std::int64_t size() const { return static_cast<std::int64_t>(ends.size()); }
  std::span<const DocumentSlice> operator[](std::int64_t row) const;
  void end_row() { ends.push_back(static_cast<std::int64_t>(slices.size())); }
};

/// Packs documents of the given lengths into rows of at most row_length tokens: a pure function. Empty documents take
/// no part. Best fit decreasing: by length descending (file order among equals), each into the row with the least room
/// that still holds it (the row that got that much room first, among equals), rows in the order of their opening.
PackedRows pack(Packing packing, std::span<const std::int32_t> lengths, std::int64_t row_length);

}  // namespace qtrain
