#pragma once
#include <memory>
#include <optional>

#include "core/graph.h"
#include "optim/optimizer.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/gradient_squares.h"
#include "train/ranks/rank_sums.h"
#include "train/ranks/shard_ranks.h"
#include "train/ranks/unrecorded_units.h"
#include "train/step/device_batch.h"

namespace qtrain {

/// Sizes of micro-batches whose records a run keeps: about as many as occur often.
inline constexpr std::size_t kKeptGraphs = 32;

/// The device's part of training steps: forward and backward of each micro-batch, then clipping and the optimizer. On a
/// CUDA device this work is recorded and replayed where `graphs` is not 0 (see GraphCache).
class TrainStep {
 public:
  struct Options {
    std::int64_t max_tokens = 0;  ///< of a micro-batch, over all ranks that share it
    std::size_t graphs = 0;       ///< records that are kept
    ReductionOptions reduction = {};
  };
  struct Parts {
    Transformer& model;
    Optimizer& optimizer;
    Collective& ranks;
    ShardRanks* shard_ranks = nullptr;  ///< where states are divided among them
  };
  /// The model and the optimizer have their memory.
  TrainStep(Ctx& ctx, const Parts& parts, const Options& options);
  /// Of the device, beside what ranks need for each other.
  static std::size_t bytes(std::int64_t max_tokens, const ContextShare& share) {
    return BatchFeed::bytes(max_tokens, share) + DeviceNumbers::bytes(kSums);
  }

  /// Begins an optimizer step of so many micro-batches: gradients and sums become 0.
  void begin(std::int64_t micro_batches);
  /// Queues forward and backward of a micro-batch that has targets or is balanced.
  void add(const Batch& batch, const MicroStep& step);
  /// Instead of `add` for one that has neither: other ranks may add theirs meanwhile.
  void skip() { model_.follow(ctx_, Pass::train); }
  /// After each micro-batch, whether this rank added or skipped it.
  void end_micro_batch();
  /// Adds gradients and sums over all ranks and queues the update, which changes nothing unless both sums are finite.
  /// Waits for the step's work.
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
  Collective& ranks_;
  std::vector<Param*> trained_;
  BatchFeed feed_;
  DeviceNumbers sums_;
  RankSums rank_sums_;
  std::unique_ptr<GradientExchange> exchange_;
  GradientSquares squares_;
  GraphCache graphs_;
  std::optional<UnrecordedUnits> units_;  ///< where ranks exchange something in passes
};

}  // namespace qtrain
