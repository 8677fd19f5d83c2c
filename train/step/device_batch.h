#pragma once
#include <vector>

#include "core/transfer.h"
#include "data/loader.h"
#include "model/transformer.h"

namespace qtrain {

/// What a training pass needs besides tokens.
struct MicroStep {
  double scale = 0;         ///< of the gradient of the loss sum
  double router_scale = 0;  ///< of that of the loss of routers, beside its coefficient
  std::int64_t dropout_seed = 0;
};

/// The seed of a micro-batch: dropout masks depend on nothing else.
std::int64_t dropout_seed(std::int64_t seed, std::int64_t step, std::int64_t batch);

/// A micro-batch as the model reads it. The views last until the next `send` of their feed.
struct DeviceBatch {
  TokenBatch tokens;
  ConstTensor scale, router_scale, dropout_seed;  ///< of the MicroStep

  /// Everything that decides which work the batch is; batches of equal sizes lie at the same addresses.
  std::vector<std::int64_t> sizes() const {
    return {tokens.tokens.numel(), tokens.cu_seqlens.numel(), tokens.target_rows.numel()};
  }
};

/// The sizes that batches come in: as they are, or filled up to one of a few, with tokens of no document, documents
/// without tokens, and targets that are none. What fills up adds exactly nothing to losses and gradients.
enum class Sizes : std::uint8_t { exact, classes };

/// `n` tokens or targets filled up: to a multiple of a sixteenth of the `most` that there are in any batch.
std::int64_t size_class(std::int64_t n, std::int64_t most);

/// Brings batches of a loader to the device, without waiting for the work on earlier ones: where ranks share the
/// tokens, this rank's part of them, filled up at the end of all: by a document of its own, or, with size classes, by
/// tokens of none.
class BatchFeed {
 public:
  /// Of batches of up to so many tokens over all ranks that share them.
  struct Options {
    std::int64_t max_tokens = 0;
    Sizes sizes = Sizes::exact;
    ContextShare share = {};
  };
  BatchFeed(Device device, const Options& options);
  /// Of the device.
  static std::size_t bytes(std::int64_t max_tokens, const ContextShare& share = {});
  DeviceBatch send(Ctx& ctx, const Batch& batch, const MicroStep& step = {});

 private:
  StagingBuffer inputs_;
  Options options_;
};

/// The largest batches that a loader can give, over all ranks that share them; and what one of these has of it.
BatchSize largest_batch(const Loader& loader, const Dataset& dataset);
BatchSize own_size(const BatchSize& all, const ContextShare& share);

}  // namespace qtrain
