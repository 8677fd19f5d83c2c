#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/shards.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain {

/// Where a rank's communication runs.
enum class ExchangeLane : std::uint8_t {
  own,        ///< in its own lane, in parallel with computation
  computing,  ///< in the computing lane, alternating with computation
};

/// The lane that a run uses. On processors a separate thread communicates (QueuedCollective); on a GPU a separate
/// stream if communication overlaps the passes (exchanges_beside), else the computing stream.
constexpr ExchangeLane exchange_lane(DeviceKind device, bool beside) {
  return device == DeviceKind::cuda && !beside ? ExchangeLane::computing : ExchangeLane::own;
}

/// Structure of an optimizer step of several ranks, without durations.
struct StepShape {
  ZeroStage stage = ZeroStage::none;
  int buffers = 2;  ///< blocks that are unsharded at a time: Sharding::buffers
  ReductionOrder order = ReductionOrder::ranks;
  /// Whether unsharded gradients are reduced during the pass: see ReductionOptions.
  bool beside = false;
  std::int64_t micro_batches = 1;
  std::int64_t group = 1;  ///< blocks whose inputs are recomputed together: RecomputePolicy::group
  ExchangeLane lane = ExchangeLane::own;
  bool gathers_again = false;  ///< all weights, after the update with ZeroStage::weights: Runner::measure_rows
  bool replicates = false;     ///< the first replica's weights go to the others after the update
};

/// Durations of the parts of an optimizer step in seconds; of a collective, from when all ranks have started it.
struct StepCosts {
  struct Block {
    double forward = 0;
    double backward = 0;  ///< including recomputation of the block itself
  };
  struct Unit {
    double gather = 0;     ///< of its weights, before a pass with ZeroStage::weights, else after the update
    double reduce = 0;     ///< of its gradients
    double settle = 0;     ///< of the summed gradients over replicas, after the last micro-batch
    double replicate = 0;  ///< of the first replica's weights, after the update
  };
  std::vector<Block> blocks;
  std::vector<Unit> units;                             ///< by unit number: everything outside blocks, then the blocks
  double embedding = 0, head = 0, embedding_grad = 0;  ///< head: forward and backward
  double update = 0;                                   ///< of the optimizer
  /// Reduction of unsharded gradients (ZeroStage::none): after each micro-batch, and before the update.
  double micro_batch_sum = 0, step_sum = 0;
  double norm = 0;     ///< reductions of single numbers
  double between = 0;  ///< other work of the host
};

enum class Lane : std::uint8_t { computing, exchanging };

/// A piece of a rank's work, with its begin and end within the step.
struct SimulatedSpan {
  Lane lane;
  std::string name;  ///< "forward of block 3", "gather unit 4", "update"
  double begin, end;
  int unit = -1;  ///< unit of a collective; -1 if none
};

/// A simulated optimizer step.
struct SimulatedStep {
  std::vector<SimulatedSpan> spans;  ///< of rank 0, in the order in which they began
  double seconds = 0;                ///< until all ranks have finished

  double total(Lane lane) const;
  /// Time without computation: exposed communication.
  double waiting() const { return seconds - total(Lane::computing); }
};

/// Simulates an optimizer step as Runner and GradientExchange execute it: one lane computes, and the same or another
/// lane runs the collectives one after the other in the order of their start. The next block's weights are fetched
/// before a block is computed, and its gradients are reduced after it; computation waits for what it needs.
SimulatedStep simulate_step(const StepShape& shape, const StepCosts& costs);
/// The same for ranks with different computing times: a collective begins when the last rank reaches it. Its duration
/// is that of the first rank.
SimulatedStep simulate_step(const StepShape& shape, std::span<const StepCosts> ranks);

}  // namespace qtrain
