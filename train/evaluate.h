#pragma once
#include "data/loader.h"
#include "model/transformer.h"

namespace qtrain {

/// Loss over a whole split: the sum over targets divided by their number, whatever the batching.
struct Evaluation {
  double loss_sum = 0;
  std::int64_t tokens = 0, target_tokens = 0, rows = 0, batches = 0;

  double loss() const { return target_tokens > 0 ? loss_sum / static_cast<double>(target_tokens) : 0; }
};
/// The model must be planned for Pass::evaluate with largest_batch. Ends early when a stop is asked for.
Evaluation evaluate(Ctx& ctx, Transformer& model, const Loader& loader);

}  // namespace qtrain
