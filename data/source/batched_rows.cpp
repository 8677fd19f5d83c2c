#include "data/source/batched_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "data/source/raw_rows.h"

namespace qtrain {
namespace {

constexpr std::uint64_t kBytesPerRow = 16;

}  // namespace

// A list of rows takes up to 16 bytes for each, and may take as much memory as decoded data.
BatchedRows::BatchedRows(const Stored& stored)
    : RowSource(stored.name),
      bytes_of_file_(stored.bytes),
      max_rows_(std::max(GrowthLimit::kFreeBytes, stored.bytes * GrowthLimit::kTimes) / kBytesPerRow),
      growth_(stored.bytes, kAsLines),
      repetition_(repetition_limit()) {}

void BatchedRows::add_batch(std::int64_t rows, std::uint64_t bytes) {
  constexpr std::uint64_t kMaxBelieved = std::uint64_t{1} << 40;
  if (static_cast<std::uint64_t>(rows) > max_rows_ - static_cast<std::uint64_t>(size()))
    fail(ErrorKind::input, {.cause = fmt::format("it has more than {} rows, too many for its size", max_rows_),
                            .place = name(),
                            .remedy = kAsLines});
  counted_.push_back({});
  ends_.push_back(size() + rows);
  bytes_.push_back(static_cast<std::int64_t>(std::min(bytes, kMaxBelieved)));
}

std::size_t BatchedRows::batch_of(std::int64_t row) const {
  check(row >= 0 && row < size(), "a row out of range");
  return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
}

std::int64_t BatchedRows::bytes(std::int64_t row) const {
  const std::size_t batch = batch_of(row);
  return 1 + bytes_[batch] / (ends_[batch] - (batch == 0 ? 0 : ends_[batch - 1]));
}

// Rows are read in order, so a batch is finished with its last row.
void BatchedRows::release(std::int64_t first, std::int64_t last) const {
  auto end = std::upper_bound(ends_.begin(), ends_.end(), first);
  for (; end != ends_.end() && *end <= last + 1; ++end) release_batch(static_cast<std::size_t>(end - ends_.begin()));
}

Json BatchedRows::parse(std::int64_t row) const {
  const std::size_t batch = batch_of(row);
  const std::int64_t begin = batch == 0 ? 0 : ends_[batch - 1];
  return with_place(place(row), [&] { return batch_at(batch)->row(row - begin); });
}

std::shared_ptr<const RowBatch> BatchedRows::batch_at(std::size_t batch) const {
  const std::shared_ptr<Slot> slot = slot_of(batch);
  const std::lock_guard lock(slot->decoding);
  if (slot->error) std::rethrow_exception(slot->error);
  if (slot->rows) return slot->rows;
  try {
    keep(*slot, load(batch));
    return slot->rows;
  } catch (const Error&) {  // the same error for every row
    slot->error = std::current_exception();
    throw;
  }
}

std::shared_ptr<BatchedRows::Slot> BatchedRows::slot_of(std::size_t batch) const {
  const std::lock_guard lock(mutex_);
  auto at = std::find_if(slots_.begin(), slots_.end(), [&](const auto& s) { return s->batch == batch; });
  if (at != slots_.end()) {
    std::rotate(slots_.begin(), at, at + 1);
  } else {
    slots_.insert(slots_.begin(), std::make_shared<Slot>());
    slots_.front()->batch = batch;
    slots_.front()->bytes = bytes_[batch];
    drop_old_slots();
  }
  return slots_.front();
}

/// The actual size of a batch may exceed what the file states. A batch that is decoded again is counted once.
void BatchedRows::keep(Slot& slot, std::shared_ptr<const RowBatch> rows) const {
  const std::lock_guard lock(mutex_);
  const auto count = [](GrowthLimit& limit, std::uint64_t& counted, std::uint64_t bytes) {
    if (bytes > counted) limit.add(bytes - counted);
    counted = std::max(counted, bytes);
  };
  RowBatch::Size& counted = counted_[slot.batch];
  count(growth_, counted.memory, rows->bytes());
  count(repetition_, counted.repeated, rows->shared_bytes());
  slot.rows = std::move(rows);
  slot.bytes = std::max(slot.bytes, static_cast<std::int64_t>(slot.rows->bytes()));
  drop_old_slots();
}

// Threads work on neighboring rows: together on two batches if these are large, on one or two each if they are small.
void BatchedRows::drop_old_slots() const {
  constexpr std::size_t kMin = 2;
  constexpr std::int64_t kKeptBytes = std::int64_t{1} << 28;
  const std::size_t most = std::max<std::size_t>(8, 2 * std::thread::hardware_concurrency());
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    bytes += slots_[i]->bytes;
    if (i < kMin || (i < most && bytes <= kKeptBytes)) continue;
    slots_.resize(i);
  }
}

}  // namespace qtrain
