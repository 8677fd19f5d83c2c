#include "data/token_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/idx.h"

namespace qtrain {
std::int64_t DatasetStatistics::min() const {
  return lengths.empty() ? 0 : *std::min_element(lengths.begin(), lengths.end());
}
std::int64_t DatasetStatistics::max() const {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

double DatasetStatistics::mean() const {
  const auto sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return lengths.empty() ? 0.0 : static_cast<double>(sum) / static_cast<double>(lengths.size());
}

std::int64_t DatasetStatistics::percentile(double p) const {
  if (lengths.empty()) return 0;
  std::vector<std::int32_t> sorted = lengths;
  const auto n = static_cast<double>(sorted.size());
  const auto at = static_cast<std::ptrdiff_t>(std::clamp(std::ceil(p * n) - 1, 0.0, n - 1));
  std::nth_element(sorted.begin(), sorted.begin() + at, sorted.end());
  return sorted[static_cast<std::size_t>(at)];
}

RowView Dataset::row(std::int64_t i) const {
  check(i >= 0 && i < size(), "row outside the data set");
  const auto begin = idx(layout_.row_offsets[idx(i)]), count = idx(length(i));
  const auto first = idx(layout_.document_offsets[idx(i)]);
  return {.input_ids = layout_.tokens.subspan(2 * begin, count),
          .labels = layout_.tokens.subspan(2 * begin + count, count),
          .document_starts = layout_.document_starts.subspan(first, idx(layout_.document_offsets[idx(i) + 1]) - first)};
}

std::vector<std::int32_t> Dataset::position_ids(std::int64_t i) const {
  const std::span<const std::int32_t> starts = row(i).document_starts;
  std::vector<std::int32_t> positions(idx(length(i)));
  for (std::size_t d = 0; d < starts.size(); ++d) {
    const auto end = d + 1 < starts.size() ? positions.begin() + starts[d + 1] : positions.end();
    std::iota(positions.begin() + starts[d], end, 0);
  }
  return positions;
}

Json Dataset::dump(std::int64_t i) const {
  const RowView view = row(i);
  return {{"input_ids", std::vector<std::int32_t>(view.input_ids.begin(), view.input_ids.end())},
          {"labels", std::vector<std::int32_t>(view.labels.begin(), view.labels.end())},
          {"position_ids", position_ids(i)}};
}

DatasetBuilder::DatasetBuilder(TokenSink sink, const SpoolOptions& spools)
    : sink_(std::move(sink)),
      spools_(spools),
      tokens_(spools),
      targets_(spools),
      document_starts_(spools),
      row_offsets_(spools),
      document_offsets_(spools) {}

void DatasetBuilder::append(const RowView& row) {
  check(row.labels.size() == row.input_ids.size(), "as many labels as tokens");
  constexpr std::int32_t kWholeRow[] = {0};
  std::span<const std::int32_t> starts = row.document_starts;
  if (starts.empty() && row.size() > 0) starts = kWholeRow;
  check(starts.empty() || starts.front() == 0, "the first document begins with the row");
  row_offsets_.push(token_count_);
  document_offsets_.push(document_starts_.size());
  document_starts_.append(starts);
  for (const std::span<const std::int32_t> part : {row.input_ids, row.labels}) {
    if (sink_)
      sink_(std::as_bytes(part));
    else
      tokens_.append(part);
  }
  token_count_ += row.size();
  hash(row, starts);
  count(row, starts);
}

void DatasetBuilder::hash(const RowView& row, std::span<const std::int32_t> starts) {
  const std::int64_t sizes[] = {row.size(), static_cast<std::int64_t>(starts.size())};
  const auto add = [&](std::span<const std::byte> bytes) {
    hasher_.add(bytes);
    sha256_.add(bytes);
  };
  add(std::as_bytes(std::span(sizes)));
  for (const std::span<const std::int32_t> part : {row.input_ids, row.labels, starts}) add(std::as_bytes(part));
}

void DatasetBuilder::count(const RowView& row, std::span<const std::int32_t> starts) {
  std::int32_t targets = 0;
  for (std::size_t t = 0; t < row.labels.size(); ++t) {
    targets += row.labels[t] != kNoTarget;
    statistics_.max_token_id = std::max({statistics_.max_token_id, row.input_ids[t], row.labels[t]});
  }
  for (const std::int32_t start : starts) targets -= row.labels[static_cast<std::size_t>(start)] != kNoTarget;
  targets_.push(targets);
  ++statistics_.rows;
  statistics_.tokens += row.size();
  statistics_.documents += static_cast<std::int64_t>(starts.size());
  statistics_.longest = std::max(statistics_.longest, row.size());
  statistics_.target_tokens += targets;
  statistics_.untargeted_rows += targets == 0;
}

DatasetLayout DatasetBuilder::layout() {
  if (row_offsets_.size() == targets_.size()) {
    row_offsets_.push(token_count_);
    document_offsets_.push(document_starts_.size());
  }
  return {.tokens = tokens_.values(),
          .row_offsets = row_offsets_.values(),
          .document_offsets = document_offsets_.values(),
          .targets = targets_.values(),
          .document_starts = document_starts_.values()};
}

void DatasetBuilder::release() const {
  for (const auto* spool : {&tokens_, &targets_, &document_starts_}) spool->release();
  for (const auto* spool : {&row_offsets_, &document_offsets_}) spool->release();
}

Dataset DatasetBuilder::finish() && {
  check(!sink_, "finish needs the tokens in memory");
  const auto kept = std::make_shared<DatasetBuilder>(std::move(*this));
  Dataset dataset(kept->layout(), kept);
  dataset.statistics() = std::move(kept->statistics_);
  dataset.set_fingerprint(kept->fingerprint());
  dataset.set_sha256(kept->sha256());
  return dataset;
}

}  // namespace qtrain
