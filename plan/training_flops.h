#pragma once
#include "model/recompute.h"
#include "model/transformer.h"

namespace qtrain {

/// Statistics of a run's tokens.
struct TokenMix {
  double context = 0;       ///< mean tokens of a document
  double target_share = 1;  ///< fraction of the tokens that reach the head
};

/// Floating-point operations of training, per token.
struct TrainingFlops {
  double layers = 0;
  double forward = 0, backward = 0;  ///< per block; the backward pass includes recomputing the block
  double attention = 0;              ///< the part of `forward` that is attention; its gradient is twice as much
  double head = 0;                   ///< forward and backward
  double inputs = 0;                 ///< of all blocks that are rerun to recompute inputs of others

  double total() const { return layers * (forward + backward) + head + inputs; }
};

/// Counts 6 FLOPs per trained weight and 4 per frozen one (2 forward and 2 per gradient), three times the GEMMs of
/// causal attention, 2 per weight with a DoRA magnitude, and 2 per weight for every recomputation of a block.
TrainingFlops training_flops(Transformer& model, const TokenMix& mix, const RecomputePolicy& policy);

}  // namespace qtrain
