#include "data/packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "core/error.h"
#include "core/idx.h"

namespace qtrain {
namespace {

constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();

using Slices = std::vector<DocumentSlice>;

/// Splits documents into chunks of at most row_length tokens; with bfd, drops the rest instead.
Slices chunks_of(std::span<const std::int32_t> lengths, std::int32_t row_length, Packing packing) {
  Slices chunks;
  chunks.reserve(lengths.size());
  for (std::size_t d = 0; d < lengths.size(); ++d)
    for (std::int32_t begin = 0; begin < lengths[d]; begin += row_length) {
      chunks.push_back({static_cast<std::int64_t>(d), begin, std::min(row_length, lengths[d] - begin)});
      if (packing == Packing::bfd || lengths[d] - begin <= row_length) break;
    }
  return chunks;
}

/// Assigns chunks of descending size to rows; place() returns the row index.
class BestFit {
 public:
  explicit BestFit(std::int32_t row_length) : row_length_(row_length) {}

  std::int32_t rows() const { return static_cast<std::int32_t>(next_.size()); }
  std::int32_t place(std::int32_t size) {
    const auto best = queues_.lower_bound(size);
    const std::int32_t room = best == queues_.end() ? row_length_ : best->first;
    const std::int32_t row = best == queues_.end() ? open() : take(best);
    if (room > size) put(room - size, row);
    return row;
  }

 private:
  /// Rows with equal room, first in, first out; linked through next_.
  struct Queue {
    std::int32_t first, last;
  };
  using Queues = std::map<std::int32_t, Queue>;

  std::int32_t open() {
    next_.push_back(-1);
    return rows() - 1;
  }
  std::int32_t take(Queues::iterator queue) {
    const std::int32_t row = queue->second.first;
    queue->second.first = next_[idx(row)];
    if (queue->second.first < 0) queues_.erase(queue);
    return row;
  }
  void put(std::int32_t room, std::int32_t row) {
    next_[idx(row)] = -1;
    const auto [queue, is_new] = queues_.try_emplace(room, Queue{row, row});
    if (is_new) return;
    next_[idx(queue->second.last)] = row;
    queue->second.last = row;
  }

  std::int32_t row_length_;
  Queues queues_;  // by room
  std::vector<std::int32_t> next_;
};

PackedRows best_fit_decreasing(Slices chunks, std::int32_t row_length) {
  std::stable_sort(chunks.begin(), chunks.end(),
                   [](const DocumentSlice& a, const DocumentSlice& b) { return a.size > b.size; });
  BestFit fit(row_length);
  std::vector<std::int32_t> row_of;
  row_of.reserve(chunks.size());
  for (const DocumentSlice& chunk : chunks) row_of.push_back(fit.place(chunk.size));

  PackedRows rows{.slices = Slices(chunks.size()), .ends = std::vector<std::int64_t>(idx(fit.rows()) + 1)};
  for (const std::int32_t row : row_of) ++rows.ends[idx(row) + 1];
  for (std::size_t r = 1; r < rows.ends.size(); ++r) rows.ends[r] += rows.ends[r - 1];  // start of each row
  for (std::size_t i = 0; i < chunks.size(); ++i) rows.slices[idx(rows.ends[idx(row_of[i])]++)] = chunks[i];
  rows.ends.pop_back();
  return rows;
}

/// Concatenates and cuts. A partial last row is kept unless only full rows are wanted.
PackedRows wrap(Packing packing, std::span<const std::int32_t> lengths, std::int32_t row_length) {
  PackedRows rows;
  std::int32_t room = row_length;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    for (std::int32_t begin = 0; begin < lengths[d];) {
      const std::int32_t size = std::min(room, lengths[d] - begin);
      rows.slices.push_back({static_cast<std::int64_t>(d), begin, size});
      begin += size;
      room -= size;
      if (room > 0) continue;
      rows.end_row();
      room = row_length;
    }
  if (room < row_length && packing == Packing::wrapped) rows.end_row();
  rows.slices.resize(rows.ends.empty() ? 0 : idx(rows.ends.back()));
  return rows;
}

}  // namespace

std::span<const DocumentSlice> PackedRows::operator[](std::int64_t row) const {
  const std::int64_t begin = row > 0 ? ends[idx(row) - 1] : 0;
  return std::span(slices).subspan(idx(begin), idx(ends[idx(row)] - begin));
}

PackedRows pack(Packing packing, std::span<const std::int32_t> lengths, std::int64_t row_length) {
  if (row_length < 1)
    fail(ErrorKind::usage, {.cause = "packing needs max_length", .remedy = "Set max_length to at least 1."});
  const auto max_row = static_cast<std::int32_t>(std::min<std::int64_t>(row_length, kMaxTokens));
  if (is_one_text(packing)) return wrap(packing, lengths, max_row);
  if (packing != Packing::none) return best_fit_decreasing(chunks_of(lengths, max_row, packing), max_row);
  PackedRows rows;
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    rows.slices.push_back({static_cast<std::int64_t>(d), 0, std::min(max_row, lengths[d])});
    rows.end_row();
  }
  return rows;
}

}  // namespace qtrain
