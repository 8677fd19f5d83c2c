#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace qtrain {

/// How documents share a training row; the strategies of TRL's pack_dataset.
enum class Packing : std::uint8_t {
  none,
  bfd,        ///< best-fit decreasing; the excess is dropped
  bfd_split,  ///< best-fit decreasing; the excess becomes separate documents
  wrapped,    ///< documents concatenated and cut every `row_length` tokens
  blocks,     ///< like wrapped, but drops a partial last row, as LLaMA-Factory does (not in TRL)
};

/// What to do with a row that is longer than max_length.
enum class TooLong : std::uint8_t {
  keep_start,
  keep_end,      ///< only without packing
  keep_answers,  ///< truncates questions before answers, turn by turn, as LLaMA-Factory does
  drop,          ///< skips and counts the row
  raise,         ///< throws
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

/// Rows, each a sequence of slices.
struct PackedRows {
  std::vector<DocumentSlice> slices;
  std::vector<std::int64_t> ends;  ///< end of each row in `slices`

  std::int64_t size() const { return static_cast<std::int64_t>(ends.size()); }
  std::span<const DocumentSlice> operator[](std::int64_t row) const;
  void end_row() { ends.push_back(static_cast<std::int64_t>(slices.size())); }
};

/// Packs documents of the given lengths into rows of at most row_length tokens; a pure function. Skips empty documents.
/// Best-fit decreasing: by descending length (file order among equals), each goes into the row with the least
/// sufficient room (among equals, the one that reached that room first); rows are in order of creation.
PackedRows pack(Packing packing, std::span<const std::int32_t> lengths, std::int64_t row_length);

}  // namespace qtrain
