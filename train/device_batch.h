#pragma once
#include "core/transfer.h"
#include "data/loader.h"
#include "model/transformer.h"

namespace qtrain {

/// What a training pass needs besides tokens.
struct MicroStep {
  double scale = 0;  ///< of the gradient of the loss sum
  std::int64_t dropout_seed = 0;
};

/// The seed of a micro-batch: dropout masks depend on nothing else.
std::int64_t dropout_seed(std::int64_t seed, std::int64_t step, std::int64_t batch);

/// A micro-batch as the model reads it. The views last until the next `send` of their feed.
struct DeviceBatch {
  TokenBatch tokens;
  ConstTensor scale, dropout_seed;  ///< of the MicroStep
};

/// Sums over a window that a training run keeps on its device: of the loss and of squared gradients.
inline constexpr int kStepSums = 2;

/// Brings batches of a loader to the device, without waiting for the work on earlier ones.
class BatchFeed {
 public:
  /// For batches of up to so many tokens.
  BatchFeed(Device device, std::int64_t most_tokens);
  /// Of the device.
  static std::size_t bytes(std::int64_t most_tokens);
  DeviceBatch send(Ctx& ctx, const Batch& batch, const MicroStep& step = {});

 private:
  Mailbox inputs_;
};

/// The largest batches that a loader can give to the model.
BatchSize largest_batch(const Loader& loader, const Dataset& dataset);

}  // namespace qtrain
