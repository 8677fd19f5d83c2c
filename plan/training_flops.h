#pragma once
#include "model/recompute.h"
#include "model/transformer.h"

namespace qtrain {

/// What the tokens of a run are like.
struct TokenMix {
  double context = 0;       ///< mean tokens of a document
  double target_share = 1;  ///< of the tokens, that reach the head
};

/// Floating-point operations of training, for each token.
struct TrainingFlops {
  double layers = 0;
  double forward = 0, backward = 0;  ///< of a block; what it computes again of itself is in its backward pass
  double head = 0;                   ///< both ways
  double inputs = 0;                 ///< of all blocks that are run again for the inputs of others

  double total() const { return layers * (forward + backward) + head + inputs; }
};

/// 6 per weight and token where it trains, 4 where it is frozen (2 forward, 2 for each gradient), the GEMMs of causal
/// attention three times, 2 per weight with a magnitude (DoRA), and 2 per weight for each time that a block is computed
/// again.
TrainingFlops training_flops(Transformer& model, const TokenMix& mix, const RecomputePolicy& policy);

}  // namespace qtrain
