#include "data/row_assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/idx.h"
#include "core/plural.h"
#include "data/sampler.h"

namespace qtrain {
namespace {

constexpr std::uint32_t kShuffleRows = 1, kShufflePacked = 2;  // permutation salts
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

RowAssembly::RowAssembly(const DatasetSource& source, DatasetBuilder& into)
    : rows_(source.rows),
      options_(source.options),
      into_(into),
      documents_(into.spools()),
      packs_(options_.packing != Packing::none),
      cuts_(options_.max_length && (options_.packing == Packing::none || options_.packing == Packing::bfd)),
      borders_(!is_one_text(options_.packing) || options_.isolate_wrapped),
      batch_(batch_rows(options_)) {
  const SpecialTokens& special = source.tools.tokenizer.special();
  if (options_.packing == Packing::blocks && special.add_bos) block_start_ = special.bos_id;
}

void RowAssembly::add(const EncodedBlock& block) {
  std::span<const std::int32_t> tokens = block.tokens, starts = block.starts;
  auto left_out = block.left_out.begin();
  auto remark = block.remarks.begin();
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
    EncodedBlock::Remark about{};
    if (remark != block.remarks.end() && idx(remark->row) == i) about = *remark++;
    add_row(block.first + static_cast<std::int64_t>(i), row, about);
  }
  into_.statistics().prompt_mismatches += block.prompt_mismatches;
  into_.statistics().joined_pairs += block.joined_pairs;
  into_.statistics().first_prompts += block.first_prompts;
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
  LeftOutRows* rows = &s.unplaced;
  if (why.lacks == EncodedRow::Lack::answer) rows = &s.unanswered;
  if (why.lacks == EncodedRow::Lack::turns) rows = &s.broken;
  count(*rows, row, why.reason);
}

void RowAssembly::count(LeftOutRows& rows, std::int64_t row, const std::string& reason) const {
  if (rows.count++ == 0) rows = {.count = 1, .place = rows_.place(row), .reason = reason};
}

void RowAssembly::add_row(std::int64_t row, const RowView& view, const EncodedBlock::Remark& about) {
  DatasetStatistics& s = into_.statistics();
  ++s.source_rows;
  s.lengths.push_back(static_cast<std::int32_t>(view.size() + about.lost));
  if (about.lost > 0) cut(row, view.size() + about.lost, view.size());
  if (!cuts_ || view.size() <= *options_.max_length)
    add_part(view, {.size = static_cast<std::int32_t>(view.size())});
  else
    add_long(row, view, about);
}

void RowAssembly::add_part(const RowView& view, const DocumentSlice& part) {
  documents_.append(view, part);
  if (documents_.size() == batch_) flush();
}

/// Handles a row that is longer than max_length.
void RowAssembly::add_long(std::int64_t row, const RowView& view, const EncodedBlock::Remark& about) {
  const auto size = static_cast<std::int32_t>(view.size()), most = static_cast<std::int32_t>(*options_.max_length);
  if (about.is_text) {
    for (std::int32_t begin = 0; begin < size; begin += most)
      add_part(view, {.begin = begin, .size = std::min(most, size - begin)});
    return;
  }
  const std::string reason = fmt::format("it has {}", counted(size, "token"));
  if (options_.too_long == TooLong::drop) return count(into_.statistics().too_long, row, reason);
  if (options_.too_long == TooLong::raise)
    fail(ErrorKind::input, {.cause = fmt::format("the row has {}, but max_length is {}", counted(size, "token"), most),
                            .place = rows_.place(row),
                            .remedy = "Raise max_length, or set truncation_mode to truncate or drop such rows "
                                      "(excess_length_strategy in axolotl)."});
  cut(row, size, most);
  const bool from_end = !packs_ && options_.too_long == TooLong::keep_end;
  add_part(view, {.begin = from_end ? size - most : 0, .size = most});
}

/// Counts a row that is truncated.
void RowAssembly::cut(std::int64_t row, std::int64_t length, std::int64_t kept) {
  DatasetStatistics& s = into_.statistics();
  ++s.truncated_rows;
  s.truncated_tokens += length - kept;
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
  PackedRows rows = all_packed();
  if (options_.packing != Packing::blocks) return rows;
  std::int64_t lost = 0;
  for (const std::int32_t length : documents_.lengths()) lost += length;
  for (const DocumentSlice& slice : rows.slices) lost -= slice.size;
  into_.statistics().truncated_tokens += lost;
  return rows;
}

PackedRows RowAssembly::all_packed() {
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

/// One row per document. Like TRL with max_length, drops rows that truncation or masking left without labels.
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

/// With borders, each chunk is a document of its own, and its first token is not a target.
void RowAssembly::write(std::span<const DocumentSlice> row) {
  for (auto* part : {&ids_, &labels_, &starts_}) part->clear();
  for (const DocumentSlice& slice : row) add_slice(slice);
  if (!borders_) starts_.assign(ids_.empty() ? 0 : 1, 0);
  if (block_start_ && !ids_.empty()) ids_[0] = labels_[0] = *block_start_;
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
