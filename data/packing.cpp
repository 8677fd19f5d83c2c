#include "data/packing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "core/error.h"

namespace qtrain {
namespace {

/// The documents as pieces of at most row_length tokens: cut off behind it, or split into several.
std::vector<DocumentSlice> pieces_of(std::span<const std::int64_t> lengths, std::int64_t row_length, Packing packing) {
  std::vector<DocumentSlice> pieces;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    for (std::int64_t begin = 0; begin < lengths[d]; begin += row_length) {
      pieces.push_back({static_cast<std::int64_t>(d), begin, std::min(row_length, lengths[d] - begin)});
      if (packing == Packing::bfd) break;
    }
  return pieces;
}

std::vector<PackedRow> best_fit_decreasing(std::vector<DocumentSlice> pieces, std::int64_t row_length) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const DocumentSlice& a, const DocumentSlice& b) { return a.size > b.size; });
  std::vector<PackedRow> rows;
  std::map<std::int64_t, std::deque<std::size_t>> rows_with_room;
  for (const DocumentSlice& piece : pieces) {
    const auto best = rows_with_room.lower_bound(piece.size);
    std::size_t row = rows.size();
    std::int64_t room = row_length;
    if (best == rows_with_room.end()) {
      rows.emplace_back();
    } else {
      room = best->first;
      row = best->second.front();
      best->second.pop_front();
      if (best->second.empty()) rows_with_room.erase(best);
    }
    rows[row].push_back(piece);
    if (room > piece.size) rows_with_room[room - piece.size].push_back(row);
  }
  return rows;
}

std::vector<PackedRow> wrap(std::span<const std::int64_t> lengths, std::int64_t row_length) {
  std::vector<PackedRow> rows;
  std::int64_t room = 0;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    for (std::int64_t begin = 0; begin < lengths[d];) {
      if (room == 0) {
        rows.emplace_back();
        room = row_length;
      }
      const std::int64_t size = std::min(room, lengths[d] - begin);
      rows.back().push_back({static_cast<std::int64_t>(d), begin, size});
      begin += size;
      room -= size;
    }
  return rows;
}

}  // namespace

Packing packing_named(std::string_view name) {
  if (name == "none") return Packing::none;
  if (name == "bfd") return Packing::bfd;
  if (name == "bfd_split" || name == "bfd-requeue") return Packing::bfd_split;
  if (name == "wrapped") return Packing::wrapped;
  fail(ErrorKind::usage, {.cause = "unknown packing strategy '" + std::string(name) + "'",
                          .remedy = "Choose bfd, bfd_split, wrapped or none."});
}

std::vector<PackedRow> pack(Packing packing, std::span<const std::int64_t> lengths, std::int64_t row_length) {
  if (row_length < 1)
    fail(ErrorKind::usage, {.cause = "packing needs max_length", .remedy = "Set max_length to at least 1."});
  if (packing == Packing::wrapped) return wrap(lengths, row_length);
  if (packing != Packing::none) return best_fit_decreasing(pieces_of(lengths, row_length, packing), row_length);
  std::vector<PackedRow> rows;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    rows.push_back({{static_cast<std::int64_t>(d), 0, std::min(row_length, lengths[d])}});
  return rows;
}

}  // namespace qtrain
