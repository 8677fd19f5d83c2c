#pragma once
#include <optional>
#include <vector>

#include "core/graph.h"
#include "optim/optimizer.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/gradient_squares.h"
#include "train/ranks/rank_sums.h"
#include "train/ranks/shard_ranks.h"
#include "train/ranks/unrecorded_units.h"
#include "train/step/device_batch.h"

namespace qtrain {

/// Number of micro-batch sizes whose graphs a run keeps: about as many as occur often.
inline constexpr std::size_t kKeptGraphs = 32;

/// The device work of training steps: forward and backward of each micro-batch, then clipping and the update. On CUDA
/// it is recorded and replayed as graphs unless `graphs` is 0 (see GraphCache).
class TrainStep {
 public:
  struct Options {
    std::int64_t max_tokens = 0;  ///< largest micro-batch, over all ranks that share it
    std::size_t graphs = 0;       ///< number of graphs to keep
    ReductionOptions reduction = {};
    ops::TargetLoss loss = {};
    Noise noise = Noise::none;
  };
  struct Parts {
    Runner& runner;
    Optimizer& optimizer;
    ShardRanks& ranks;
  };
  /// The optimizer must have its memory.
  TrainStep(Ctx& ctx, const Parts& parts, const Options& options);
  /// Bytes of device memory, excluding what exchanges between ranks need.
  static std::size_t bytes(std::int64_t max_tokens, const ContextShare& share, Noise noise = Noise::none) {
    return BatchFeed::bytes(max_tokens, share, noise) + DeviceNumbers::bytes(kSums);
  }

  /// Starts an optimizer step of `micro_batches` micro-batches: resets gradients and sums.
  void begin(std::int64_t micro_batches);
  /// Queues forward and backward of a micro-batch that has targets or a router loss.
  void add(const Batch& batch, const MicroStep& step);
  /// Call in place of `add` for a micro-batch with neither; other ranks may be adding theirs.
  void skip();
  /// Call after each micro-batch, added or skipped.
  void end_micro_batch();
  /// Reduces gradients and sums over all ranks and queues the update, which changes nothing if a sum is not finite.
  /// Waits for the step's work.
  struct Sums {
    double loss = 0;     ///< over all targets
    double router = 0;   ///< router losses summed over micro-batches, without their coefficient
    double squares = 0;  ///< sum of squares of all gradients
  };
  Sums finish(const UpdateInput& input);
  /// Whether the gradient left by the last step is finite. Waits for the result.
  bool has_finite_gradient(Param& param);
  const GraphCache& graphs() const { return graphs_; }

 private:
  enum Sum : std::uint8_t { kLoss, kSquares, kRouter, kSums };

  void zero_gradients();

  Ctx& ctx_;
  Runner& runner_;
  Transformer& model_;
  Optimizer& optimizer_;
  Collective& ranks_;
  std::vector<Param*> trained_;
  BatchFeed feed_;
  DeviceNumbers sums_;
  RankSums rank_sums_;
  GradientExchange exchange_;
  GradientSquares squares_;
  GraphCache graphs_;
  ops::TargetLoss loss_;
  std::optional<UnrecordedUnits> units_;          ///< if ranks exchange data during passes
  GradientSum gradients_ = GradientSum::further;  ///< what the next micro-batch does with them
  std::vector<const Param*> converted_;           ///< whose 16-bit copies are not written by the update itself
};

}  // namespace qtrain
