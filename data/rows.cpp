#include "data/rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace qtrain {
namespace {

/// FNV-1a over 64-bit words.
struct Hash {
  std::uint64_t value = 0xcbf29ce484222325u;
  template <class T>
  void add(const std::vector<T>& numbers) {
    add(numbers.size());
    for (const T n : numbers) add(static_cast<std::uint64_t>(n));
  }
  void add(std::uint64_t word) {
    value = (value ^ word) * 0x100000001b3u;
    value ^= value >> 29;
  }
};

}  // namespace

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
  const auto begin = idx(row_offsets_[idx(i)]), count = idx(length(i));
  const auto first = idx(document_offsets_[idx(i)]), documents = idx(document_offsets_[idx(i) + 1]) - first;
  return {.input_ids = std::span(input_ids_).subspan(begin, count),
          .labels = std::span(labels_).subspan(begin, count),
          .document_starts = std::span(document_starts_).subspan(first, documents)};
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

std::uint64_t Dataset::fingerprint() const {
  Hash hash;
  hash.add(input_ids_);
  hash.add(labels_);
  hash.add(document_starts_);
  hash.add(row_offsets_);
  hash.add(document_offsets_);
  return hash.value;
}

void Dataset::reserve(std::int64_t rows, std::int64_t tokens) {
  input_ids_.reserve(idx(tokens));
  labels_.reserve(idx(tokens));
  row_offsets_.reserve(idx(rows) + 1);
  document_offsets_.reserve(idx(rows) + 1);
}

void Dataset::append(const RowView& row) {
  check(row.labels.size() == row.input_ids.size(), "as many labels as tokens");
  std::vector<std::int32_t> starts(row.document_starts.begin(), row.document_starts.end());
  if (starts.empty() && row.size() > 0) starts.push_back(0);
  check(starts.empty() || starts.front() == 0, "the first document begins with the row");
  input_ids_.insert(input_ids_.end(), row.input_ids.begin(), row.input_ids.end());
  labels_.insert(labels_.end(), row.labels.begin(), row.labels.end());
  document_starts_.insert(document_starts_.end(), starts.begin(), starts.end());
  row_offsets_.push_back(static_cast<std::int64_t>(input_ids_.size()));
  document_offsets_.push_back(static_cast<std::int64_t>(document_starts_.size()));

  statistics_.rows = size();
  statistics_.tokens = row_offsets_.back();
  std::int64_t targets = 0;
  for (std::size_t t = 0; t < row.labels.size(); ++t) {
    targets += row.labels[t] != kNoTarget;
    statistics_.max_token_id = std::max({statistics_.max_token_id, row.input_ids[t], row.labels[t]});
  }
  for (const std::int32_t start : starts) targets -= row.labels[static_cast<std::size_t>(start)] != kNoTarget;
  statistics_.target_tokens += targets;
  statistics_.untargeted_rows += targets == 0;
}

}  // namespace qtrain
