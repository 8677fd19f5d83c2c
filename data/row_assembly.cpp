#include "data/row_assembly.h"

#include <algorithm>
#include <utility>

#include "data/index.h"
#include "data/sampler.h"

namespace qtrain {
namespace {

constexpr std::uint32_t kShuffleRows = 1, kShufflePacked = 2;  // salts of permutations
constexpr std::int64_t kSingleRows = 1000;                     // rows between two writes without packing
constexpr std::int64_t kReleasedTokens = std::int64_t{1} << 23;

std::int64_t batch_rows(const DatasetOptions& options) {
  if (options.shuffle_dataset) return 0;
  return options.packing == Packing::none ? kSingleRows : options.pack_batch_rows;
}

}  // namespace

RowView Documents::view(std::int64_t i) {
  const std::span<const std::int32_t> tokens = tokens_.values();
  const std::size_t begin = 2 * idx(offsets_[idx(i)]), size = idx(lengths_[idx(i)]);
  RowView view{.input_ids = tokens.subspan(begin, size), .labels = tokens.subspan(begin + size, size)};
  if (const auto own = starts_.find(i); own != starts_.end()) view.document_starts = own->second;
  return view;
}

void Documents::append(const RowView& row, DocumentSlice kept) {
  offsets_.push_back(offsets_.empty() ? 0 : offsets_.back() + lengths_.back());
  for (const std::int32_t start : row.document_starts)
    if (start > kept.begin && start < kept.begin + kept.size) starts_[size()].push_back(start - kept.begin);
  lengths_.push_back(kept.size);
  for (const std::span<const std::int32_t> part : {row.input_ids, row.labels})
    tokens_.append(part.subspan(idx(kept.begin), idx(kept.size)));
}

void Documents::clear() {
  tokens_.clear();
  lengths_.clear();
  offsets_.clear();
  starts_.clear();
}

RowAssembly::RowAssembly(const RawRows& rows, const DatasetOptions& options, DatasetBuilder& into)
    : rows_(rows),
      options_(options),
      into_(into),
      documents_(into.spools()),
      packs_(options.packing != Packing::none),
      cuts_(options.max_length && (options.packing == Packing::none || options.packing == Packing::bfd)),
      borders_(options.packing != Packing::wrapped || options.isolate_wrapped),
      batch_(batch_rows(options)) {}

void RowAssembly::add(const EncodedBlock& block) {
  std::span<const std::int32_t> tokens = block.tokens, starts = block.starts;
  auto left_out = block.left_out.begin();
  for (std::size_t i = 0; i < block.lengths.size(); ++i) {
    if (block.lengths[i] == EncodedBlock::kLeftOut) {
      leave_out(block.first + static_cast<std::int64_t>(i), *left_out++);
      continue;
    }
    const auto size = idx(block.lengths[i]);
    RowView row{.input_ids = tokens.first(size), .labels = tokens.subspan(size, size)};
    tokens = tokens.subspan(2 * size);
    if (!starts.empty() && idx(starts[0]) == i) {
      row.document_starts = starts.subspan(2, idx(starts[1]));
      starts = starts.subspan(2 + row.document_starts.size());
    }
    add_row(block.first + static_cast<std::int64_t>(i), row);
  }
  into_.statistics().prompt_mismatches += block.prompt_mismatches;
  into_.statistics().joined_pairs += block.joined_pairs;
  LeftOutRows& unprinted = into_.statistics().unprinted;
  if (unprinted.count == 0 && block.unprinted.count > 0)
    unprinted = {.place = rows_.place(block.first + block.unprinted.row), .reason = block.unprinted.what};
  unprinted.count += block.unprinted.count;
  for (const auto& [token, rows] : block.answer_ends) count_end(token, rows);
}

void RowAssembly::count_end(std::int32_t token, std::int64_t rows) {
  std::vector<AnswerEnd>& ends = into_.statistics().answer_ends;
  const auto known = std::find_if(ends.begin(), ends.end(), [&](const AnswerEnd& end) { return end.token == token; });
  if (known != ends.end())
    known->rows += rows;
  else if (ends.size() < DatasetStatistics::kListedEnds)
    ends.push_back({.token = token, .rows = rows});
}

void RowAssembly::leave_out(std::int64_t row, const EncodedBlock::LeftOut& why) {
  DatasetStatistics& s = into_.statistics();
  ++s.source_rows;
  LeftOutRows& rows = why.lacks == EncodedRow::Lack::place ? s.unplaced : s.unanswered;
  if (rows.count++ == 0) rows = {.count = 1, .place = rows_.place(row), .reason = why.reason};
}

void RowAssembly::add_row(std::int64_t row, const RowView& view) {
  measure(row, view.size());
  const auto size = static_cast<std::int32_t>(cuts_ ? std::min(view.size(), *options_.max_length) : view.size());
  const bool from_end = !packs_ && options_.kept_end == KeptEnd::end;
  documents_.append(view, {.begin = from_end ? static_cast<std::int32_t>(view.size()) - size : 0, .size = size});
  if (documents_.size() == batch_) flush();
}

void RowAssembly::measure(std::int64_t row, std::int64_t length) {
  DatasetStatistics& s = into_.statistics();
  ++s.source_rows;
  s.lengths.push_back(static_cast<std::int32_t>(length));
  if (!cuts_ || length <= *options_.max_length) return;
  ++s.truncated_rows;
  s.truncated_tokens += length - *options_.max_length;
  if (s.first_truncated.size() < DatasetStatistics::kListedRows)
    s.first_truncated.push_back({.place = rows_.place(row), .length = length});
}

void RowAssembly::finish() {
  flush();
}

void RowAssembly::flush() {
  const PackedRows rows = packs_ ? packed_rows() : single_rows();
  if (options_.shuffle_dataset) {
    for (const std::int64_t i : random_permutation(rows.size(), {.seed = options_.seed, .salt = kShufflePacked}))
      write(rows[i]);
  } else {
    for (std::int64_t i = 0; i < rows.size(); ++i) write(rows[i]);
  }
  documents_.clear();
}

PackedRows RowAssembly::packed_rows() {
  if (!options_.shuffle_dataset) return pack(options_.packing, documents_.lengths(), *options_.max_length);
  const std::vector<std::int64_t> order =
      random_permutation(documents_.size(), {.seed = options_.seed, .salt = kShuffleRows});
  const std::int64_t batch = options_.pack_batch_rows > 0 ? options_.pack_batch_rows : documents_.size();
  PackedRows rows;
  for (std::int64_t first = 0; first < documents_.size(); first += batch) {
    std::vector<std::int32_t> lengths;
    for (std::int64_t i = first; i < std::min(first + batch, documents_.size()); ++i)
      lengths.push_back(documents_.lengths()[idx(order[idx(i)])]);
    PackedRows packed = pack(options_.packing, lengths, *options_.max_length);
    for (DocumentSlice& slice : packed.slices) slice.document = order[idx(first + slice.document)];
    for (std::int64_t& end : packed.ends) end += static_cast<std::int64_t>(rows.slices.size());
    rows.slices.insert(rows.slices.end(), packed.slices.begin(), packed.slices.end());
    rows.ends.insert(rows.ends.end(), packed.ends.begin(), packed.ends.end());
  }
  return rows;
}

/// One row per document; rows that the cut or a mask left without any label are dropped, as TRL does where max_length
/// is set.
PackedRows RowAssembly::single_rows() {
  PackedRows rows;
  for (std::int64_t d = 0; d < documents_.size(); ++d) {
    const std::span<const std::int32_t> labels = documents_.view(d).labels;
    const bool learns =
        std::any_of(labels.begin(), labels.end(), [](std::int32_t label) { return label != kNoTarget; });
    if (options_.max_length && !learns) {
      ++into_.statistics().dropped_rows;
      continue;
    }
    rows.slices.push_back({d, 0, static_cast<std::int32_t>(labels.size())});
    rows.end_row();
  }
  return rows;
}

/// With borders, each chunk is a document of its own and the label of its first token is no target.
void RowAssembly::write(std::span<const DocumentSlice> row) {
  for (auto* part : {&ids_, &labels_, &starts_}) part->clear();
  for (const DocumentSlice& slice : row) add_slice(slice);
  if (!borders_) starts_.assign(ids_.empty() ? 0 : 1, 0);
  into_.append({.input_ids = ids_, .labels = labels_, .document_starts = starts_});
  unreleased_ += static_cast<std::int64_t>(ids_.size());
  if (unreleased_ < kReleasedTokens) return;
  documents_.release();
  unreleased_ = 0;
}

void RowAssembly::add_slice(const DocumentSlice& slice) {
  const RowView document = documents_.view(slice.document);
  const std::size_t at = ids_.size(), begin = idx(slice.begin), size = idx(slice.size);
  if (size > 0) starts_.push_back(static_cast<std::int32_t>(at));
  const auto ids = document.input_ids.subspan(begin, size), labels = document.labels.subspan(begin, size);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  labels_.insert(labels_.end(), labels.begin(), labels.end());
  if (packs_ && borders_ && size > 0) labels_[at] = kNoTarget;
  if (packs_) return;
  starts_.insert(starts_.end(), document.document_starts.begin(), document.document_starts.end());
}

}  // namespace qtrain
