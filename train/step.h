#pragma once
#include "core/graph.h"
#include "optim/optimizer.h"
#include "train/device_batch.h"

namespace qtrain {

/// Records of different sizes of micro-batches that a run keeps: about as many as occur often.
inline constexpr std::size_t kKeptGraphs = 32;

/// The device's part of training steps: forward and backward of each micro-batch, then clipping and the optimizer. On a
/// CUDA device this work is recorded and replayed where `graphs` is not 0 (see GraphCache).
class TrainStep {
 public:
  struct Options {
    std::int64_t max_tokens = 0;  ///< of a micro-batch
    std::size_t graphs = 0;       ///< records that are kept
  };
  /// The model and the optimizer have their memory.
  TrainStep(Ctx& ctx, Transformer& model, Optimizer& optimizer, const Options& options);
  /// Of the device.
  static std::size_t bytes(std::int64_t max_tokens) {
    return BatchFeed::bytes(max_tokens) + DeviceNumbers::bytes(kSums);
  }

  /// Begins an optimizer step: gradients and sums become 0.
  void begin();
  /// Queues forward and backward of a micro-batch that has targets or is balanced.
  void add(const Batch& batch, const MicroStep& step);
  /// Queues the update, which changes nothing unless both sums are finite. Waits for the step's work.
  struct Sums {
    double loss = 0;     ///< over all targets
    double router = 0;   ///< losses of routers over the micro-batches, without their coefficient
    double squares = 0;  ///< of all gradients
  };
  Sums finish(const UpdateInput& input);
  /// Whether the gradient that the last step left is finite. Waits for it.
  bool has_finite_gradient(Param& param);
  const GraphCache& graphs() const { return graphs_; }

 private:
  enum Sum : std::uint8_t { kLoss, kSquares, kRouter, kSums };

  Ctx& ctx_;
  Transformer& model_;
  Optimizer& optimizer_;
  std::vector<Param*> trained_;
  BatchFeed feed_;
  DeviceNumbers sums_;
  GraphCache graphs_;
};

}  // namespace qtrain
