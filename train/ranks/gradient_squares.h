#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "train/ranks/gradient_sums.h"
#include "train/ranks/shard_ranks.h"

namespace qtrain {

/// Sum of squares of all gradients. With ReductionOrder::micro_batches the bits do not depend on how parameters are
/// sharded: every `kShardAlign` elements of a parameter form one sum, and these are added in order.
class GradientSquares {
 public:
  /// `device` is that of the parameters.
  GradientSquares(ShardRanks& ranks, Device device, ReductionOrder order, std::vector<Param*> trained);
  /// Whether `replicas` groups of `ranks` ranks copy the sum of the first group, because NCCL may add in a different
  /// order in each group of GPUs.
  static bool replicates(Device device, ReductionOrder order, int ranks, int replicas) {
    return device.kind == DeviceKind::cuda && order == ReductionOrder::ranks && ranks > 1 && replicas > 1;
  }
  /// Bytes of GPU memory that this needs.
  static std::size_t bytes(Device device, ReductionOrder order, std::span<Param* const> trained);

  /// Adds the sum to `total`, f64 [1] on the device.
  void add(Ctx& ctx, Tensor total);

 private:
  void add_segments(Ctx& ctx, Tensor total);

  ShardRanks& ranks_;
  bool replicates_;
  std::vector<Param*> trained_;
  std::vector<double> on_host_;
  DeviceMemory memory_;
  Tensor segments_;  ///< f64, one per segment of all parameters; only with micro_batches order
};

}  // namespace qtrain
