#pragma once
#include <vector>

#include "data/loader.h"
#include "model/transformer.h"

namespace qtrain {

/// A loader's batch as the model reads it; owns what the views point at.
class DeviceBatch {
 public:
  explicit DeviceBatch(Batch batch);
  DeviceBatch(const DeviceBatch&) = delete;
  DeviceBatch& operator=(const DeviceBatch&) = delete;

  const TokenBatch& view() const { return view_; }
  std::int64_t tokens() const { return batch_.size(); }

 private:
  Batch batch_;
  std::vector<std::int32_t> target_rows_, target_ids_;
  TokenBatch view_;
};

/// A one-dimensional view of host integers.
inline ConstTensor ints(const std::vector<std::int32_t>& v) {
  return view_of(std::span<const std::int32_t>(v), {static_cast<std::int64_t>(v.size())});
}

/// The largest batches that a loader can give to the model.
BatchSize largest_batch(const Loader& loader, const Dataset& dataset);

}  // namespace qtrain
