#include "data/batched_rows.h"

#include <algorithm>

#include "data/reader.h"

namespace qtrain {

void BatchedRows::add_batch(std::int64_t rows) {
  largest_ = std::max(largest_, rows);
  ends_.push_back(size() + rows);
}

void BatchedRows::set_file_size(std::uint64_t bytes) {
  row_bytes_ = 1 + static_cast<std::int64_t>(bytes) / std::max<std::int64_t>(size(), 1);
}

// Rows are read in their order: a batch is done with when its last row is.
void BatchedRows::release(std::int64_t first, std::int64_t last) const {
  auto end = std::upper_bound(ends_.begin(), ends_.end(), first);
  for (; end != ends_.end() && *end <= last + 1; ++end) release_batch(static_cast<std::size_t>(end - ends_.begin()));
}

Json BatchedRows::parse(std::int64_t row) const {
  check(row >= 0 && row < size(), "a row that is not there");
  const auto after = std::upper_bound(ends_.begin(), ends_.end(), row);
  const std::int64_t begin = after == ends_.begin() ? 0 : *(after - 1);
  return with_place(place(row),
                    [&] { return batch_at(static_cast<std::size_t>(after - ends_.begin()))->row(row - begin); });
}

std::shared_ptr<const RowBatch> BatchedRows::batch_at(std::size_t batch) const {
  const std::shared_ptr<Slot> slot = slot_of(batch);
  const std::lock_guard lock(slot->decoding);
  if (slot->error) std::rethrow_exception(slot->error);
  if (slot->rows) return slot->rows;
  try {
    return slot->rows = load(batch);
  } catch (const Error&) {  // the same for every row
    slot->error = std::current_exception();
    throw;
  }
}

std::shared_ptr<BatchedRows::Slot> BatchedRows::slot_of(std::size_t batch) const {
  const std::lock_guard lock(mutex_);
  auto at = std::find_if(slots_.begin(), slots_.end(), [&](const auto& s) { return s && s->batch == batch; });
  if (at == slots_.end()) {
    at = slots_.end() - 1;
    *at = std::make_shared<Slot>();
    (*at)->batch = batch;
  }
  std::rotate(slots_.begin(), at, at + 1);
  if (largest_ > kLargeBatch) std::fill(slots_.begin() + 2, slots_.end(), nullptr);
  return slots_.front();
}

}  // namespace qtrain
