#pragma once
#include <cstdint>
#include <vector>

#include "core/transfer.h"
#include "dist/collective.h"
#include "train/ranks/gradient_sums.h"

namespace qtrain {

/// Adds a step's sums (losses, squares: a few f64 values) over ranks, in the order of its gradients.
class RankSums {
 public:
  /// `sums` (f64 [n] on the device) are this rank's sums, and are replaced by those of all ranks.
  RankSums(Collective& ranks, ReductionOrder order, Tensor sums);

  /// Call after each micro-batch on every rank.
  void end_micro_batch(Ctx& ctx);
  /// Call after the last micro-batch. Afterwards every rank has the sums over all ranks.
  void finish_step(Ctx& ctx);

 private:
  bool in_order() const { return order_ == ReductionOrder::micro_batches; }

  Collective& ranks_;
  ReductionOrder order_;
  Tensor sums_;
  HostCopy of_rank_;
  std::vector<double> totals_;  ///< sums of the step's micro-batches so far, with micro_batches order
};

}  // namespace qtrain
