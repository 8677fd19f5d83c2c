#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/shards.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain {

/// What does the exchanges of a rank.
enum class ExchangeLane : std::uint8_t {
  own,        ///< a lane beside the one that computes
  computing,  ///< the one that computes, between what it computes
};

/// Where a run has them, beside its passes (exchanges_beside) or not: on processors a thread of their own does them
/// (QueuedCollective), on a GPU a stream of their own or the one that computes.
constexpr ExchangeLane exchange_lane(DeviceKind device, bool beside) {
  return device == DeviceKind::cuda && !beside ? ExchangeLane::computing : ExchangeLane::own;
}

/// What an update of a run of several ranks is made of, besides durations.
struct StepShape {
  ZeroStage stage = ZeroStage::none;
  int buffers = 2;  ///< blocks that are whole at a time: Sharding::buffers
  ReductionOrder order = ReductionOrder::ranks;
  /// Gradients that every rank has whole are added beside the pass: see ReductionOptions, DividedModel.
  bool beside = false;
  std::int64_t micro_batches = 1;
  std::int64_t group = 1;  ///< blocks whose inputs are computed again together: RecomputePolicy::group
  ExchangeLane lane = ExchangeLane::own;
  bool gathers_again = false;  ///< all values, after the update and with ZeroStage::weights: Transformer::measure_rows
  bool replicates = false;     ///< values of the first replica go to the others after the update
};

/// Durations in seconds of the parts of an update, each by itself; of exchanges from when all ranks have begun them.
struct StepCosts {
  struct Block {
    double forward = 0;
    double backward = 0;  ///< what is computed again of itself included
  };
  struct Unit {
    double gather = 0;     ///< its values, before a pass with ZeroStage::weights, else after the update
    double reduce = 0;     ///< its gradients
    double settle = 0;     ///< and the sums of an update over replicas, after its last micro-batch
    double replicate = 0;  ///< and the values of the first replica, after the update
  };
  std::vector<Block> blocks;
  std::vector<Unit> units;                             ///< by their numbers: what is in no block, then the blocks
  double embedding = 0, head = 0, embedding_grad = 0;  ///< the head: forward and backward
  double update = 0;                                   ///< the optimizer's
  /// For what every rank has whole (ZeroStage::none): after each micro-batch, and before the update.
  double micro_batch_sum = 0, step_sum = 0;
  double norm = 0;     ///< sums of a few numbers in an update
  double between = 0;  ///< what the host does besides
};

enum class Lane : std::uint8_t { computing, exchanging };

/// Something that a rank does, from one time of the step to another.
struct SimulatedSpan {
  Lane lane;
  std::string name;  ///< "forward of block 3", "gather unit 4", "update"
  double begin, end;
  int unit = -1;  ///< of an exchange, if it is of one
};

/// An update as it would go.
struct SimulatedStep {
  std::vector<SimulatedSpan> spans;  ///< of rank 0, in the order in which they were begun
  double seconds = 0;                ///< until all ranks are done

  double total(Lane lane) const;
  /// While nothing is computed: exchanges that are exposed.
  double waiting() const { return seconds - total(Lane::computing); }
};

/// Goes through an update as Runner and DividedModel do: one lane computes, the same or another does the exchanges one
/// after the other in the order in which they were begun. The values of the next block are fetched before one is
/// computed, the gradients of a block are added after it, and what has to be there is waited for.
SimulatedStep simulate_step(const StepShape& shape, const StepCosts& costs);
/// The same where ranks compute for different times: an exchange begins when the last one has come to it. It takes as
/// long as for the first.
SimulatedStep simulate_step(const StepShape& shape, std::span<const StepCosts> ranks);

}  // namespace qtrain
