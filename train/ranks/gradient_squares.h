#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "dist/collective.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain {

/// The sum of the squares of all gradients. With ReductionOrder::micro_batches it has the same bits
/// however parameters are divided among ranks: each `kShardAlign` elements of a parameter are one sum, and these are
/// added in their order.
class GradientSquares {
 public:
  struct Options {
    Device device = {};
    ReductionOrder order = ReductionOrder::ranks;
    bool divided = false;
    Collective* replicas = nullptr;  ///< of this rank's part, where states are divided
  };
  GradientSquares(Collective& ranks, const Options& options, std::vector<Param*> trained);
  /// Whether replicas take the sum of the first one: NCCL may add in another order in each group of GPUs.
  static bool replicates(Device device, ReductionOrder order, int replicas) {
    return device.kind == DeviceKind::cuda && order == ReductionOrder::ranks && replicas > 1;
  }
  /// Of a GPU.
  static std::size_t bytes(Device device, ReductionOrder order, std::span<Param* const> trained);

  /// Adds it to `total`, f64 [1] on the device.
  void add(Ctx& ctx, Tensor total);

 private:
  void add_segments(Ctx& ctx, Tensor total);

  Collective& ranks_;
  Options options_;
  std::vector<Param*> trained_;
  std::vector<double> on_host_;
  DeviceMemory memory_;
  Tensor segments_;  ///< f64, of all parameters; only where there is an order
};

}  // namespace qtrain
