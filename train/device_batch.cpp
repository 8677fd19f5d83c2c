#include "train/device_batch.h"

#include <algorithm>

namespace qtrain {

DeviceBatch::DeviceBatch(Batch batch) : batch_(std::move(batch)) {
  for (std::size_t t = 0; t < batch_.targets.size(); ++t)
    if (batch_.targets[t] != kNoTarget) {
      target_rows_.push_back(static_cast<std::int32_t>(t));
      target_ids_.push_back(batch_.targets[t]);
    }
  std::int32_t longest = 0;
  for (const std::int32_t p : batch_.positions) longest = std::max(longest, p + 1);
  view_ = {.tokens = ints(batch_.tokens),
           .positions = ints(batch_.positions),
           .cu_seqlens = ints(batch_.cu_seqlens),
           .target_rows = ints(target_rows_),
           .target_ids = ints(target_ids_),
           .longest = longest};
}

BatchSize largest_batch(const Loader& loader, const Dataset& dataset) {
  BatchSize size{.tokens = loader.max_batch_tokens(), .positions = 1, .targets = loader.max_batch_tokens()};
  for (std::int64_t i = 0; i < dataset.size(); ++i) size.positions = std::max(size.positions, dataset.length(i));
  return size;
}

}  // namespace qtrain
