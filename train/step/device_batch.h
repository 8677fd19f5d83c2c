#pragma once
#include <optional>
#include <vector>

#include "core/transfer.h"
#include "data/loader.h"
#include "model/runner.h"
#include "train/step/row_noise.h"

namespace qtrain {

/// Inputs of a training pass besides the batch.
struct MicroStep {
  double scale = 0;         ///< factor of the gradient of the summed loss
  double router_scale = 0;  ///< factor of the gradient of the router loss, in addition to its coefficient
  std::int64_t dropout_seed = 0;
  std::optional<RowNoise> noise = {};  ///< on the embeddings
};

/// Seed of a micro-batch's dropout masks, which depend on nothing else.
std::int64_t dropout_seed(std::int64_t seed, std::int64_t step, std::int64_t batch);

/// A micro-batch as the model reads it. Its views are valid until the next `send` of the same feed.
struct DeviceBatch {
  TokenBatch tokens;
  ConstTensor scale, router_scale, dropout_seed;  ///< values of the MicroStep
  EmbeddingNoise noise = {};

  /// Everything that determines which kernels run; batches of equal sizes are at the same addresses.
  std::vector<std::int64_t> sizes() const {
    return {tokens.tokens.numel(), tokens.cu_seqlens.numel(), tokens.target_rows.numel()};
  }
};

/// Sizes of the batches sent: exact, or padded to one of a few size classes with tokens outside documents, empty
/// documents and masked targets. Padding contributes exactly zero to losses and gradients.
enum class Sizes : std::uint8_t { exact, classes };

/// Pads `n` tokens to a multiple of a sixteenth of `most`, the largest number in any batch.
std::int64_t token_class(std::int64_t n, std::int64_t most);
/// Pads `n` targets to a multiple of a sixth of the batch's padded tokens. The share of targets varies much less than
/// the length of rows, so few pairs of classes occur, and the head computes few padding rows.
std::int64_t target_class(std::int64_t n, std::int64_t tokens);

/// Sends batches of a loader to the device without waiting for work on earlier ones. If ranks share the tokens, sends
/// this rank's part, padded at the end by an extra document or, with size classes, by tokens outside documents.
class BatchFeed {
 public:
  /// `max_tokens`: largest batch, over all ranks that share it.
  struct Options {
    std::int64_t max_tokens = 0;
    Sizes sizes = Sizes::exact;
    ContextShare share = {};
    Noise noise = Noise::none;  ///< whether a MicroStep may have noise
  };
  BatchFeed(Device device, const Options& options);
  /// Bytes of device memory that this needs.
  static std::size_t bytes(std::int64_t max_tokens, const ContextShare& share = {}, Noise noise = Noise::none);
  DeviceBatch send(Ctx& ctx, const Batch& batch, const MicroStep& step = {});

 private:
  StagingBuffer inputs_;
  Options options_;
};

/// The largest batch that a loader can return, over all ranks that share it; own_size: the part of one rank.
BatchSize largest_batch(const Loader& loader, const Dataset& dataset);
BatchSize own_size(const BatchSize& all, const ContextShare& share);

}  // namespace qtrain
