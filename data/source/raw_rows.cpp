#include "data/source/raw_rows.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/idx.h"

namespace qtrain {
namespace {

std::uint32_t row_number(std::int64_t n) {
  check(n >= 0 && n <= std::numeric_limits<std::uint32_t>::max(), "more rows in a file than can be counted");
  return static_cast<std::uint32_t>(n);
}

}  // namespace

RawRows::RawRows(const std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& file : files) {
    const RowSourcePtr source = open_rows(file);
    const auto index = static_cast<std::uint32_t>(sources_.size());
    const std::uint32_t count = row_number(source->size());
    rows_.reserve(rows_.size() + count);
    for (std::uint32_t row = 0; row < count; ++row) rows_.push_back({index, row});
    sources_.push_back({source, nullptr});
  }
}

std::string RawRows::place(std::int64_t row) const {
  const Row& at = rows_.at(idx(row));
  return sources_[at.source].rows->place(at.row);
}

Json RawRows::parse(std::int64_t row) const {
  const Row& at = rows_.at(idx(row));
  const Source& source = sources_[at.source];
  Json json = source.rows->parse(at.row);
  if (!source.columns) return json;
  return with_place(source.rows->place(at.row), [&] { return source.columns->renamed(std::move(json)); });
}

const RowSource& RawRows::source_of(std::int64_t row) const {
  return *sources_[rows_.at(idx(row)).source].rows;
}

std::int64_t RawRows::bytes(std::int64_t row) const {
  const Row& at = rows_.at(idx(row));
  return sources_[at.source].rows->bytes(at.row);
}

void RawRows::release(std::int64_t begin, std::int64_t end) const {
  while (begin < end) {  // one run of rows from the same file at a time
    const std::uint32_t source = rows_[idx(begin)].source;
    std::uint32_t first = rows_[idx(begin)].row, last = first;
    for (; begin < end && rows_[idx(begin)].source == source; ++begin) {
      first = std::min(first, rows_[idx(begin)].row);
      last = std::max(last, rows_[idx(begin)].row);
    }
    sources_[source].rows->release(first, last);
  }
}

RawRows RawRows::slice(std::int64_t begin, std::int64_t end) const {
  check(begin >= 0 && begin <= end && end <= size(), "slice of rows out of range");
  RawRows part;
  part.sources_ = sources_;
  part.rows_.assign(rows_.begin() + begin, rows_.begin() + end);
  return part;
}

RawRows RawRows::select(const std::vector<std::int64_t>& rows) const {
  RawRows part;
  part.sources_ = sources_;
  part.rows_.reserve(rows.size());
  for (const std::int64_t row : rows) part.rows_.push_back(rows_.at(idx(row)));
  return part;
}

RawRows RawRows::with_columns(const ColumnMap& columns) const {
  RawRows named = *this;
  if (columns.empty()) return named;
  const auto shared = std::make_shared<const ColumnMap>(columns);
  for (Source& source : named.sources_) source.columns = shared;
  return named;
}

RawRows RawRows::concatenated(const std::vector<RawRows>& parts) {
  RawRows all;
  for (const RawRows& part : parts) {
    const auto base = static_cast<std::uint32_t>(all.sources_.size());
    all.sources_.insert(all.sources_.end(), part.sources_.begin(), part.sources_.end());
    for (const Row& row : part.rows_) all.rows_.push_back({base + row.source, row.row});
  }
  return all;
}

std::vector<RowSourcePtr> RawRows::sources() const {
  std::vector<RowSourcePtr> all;
  for (const Source& source : sources_) all.push_back(source.rows);
  return all;
}

}  // namespace qtrain
