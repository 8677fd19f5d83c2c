#pragma once
#include "model/layer/layer.h"
#include "model/parameters.h"

/// Gradients that the first micro-batch of an optimizer step stores instead of adding to zeros: those of dense linear
/// layers and of vectors in blocks, which a backward pass computes exactly once, and of the final norm and the head,
/// whose first chunk stores. Embeddings, experts and adapters are always added to.
namespace qtrain {

/// The sinks of what the first micro-batch stores are changed from accumulate to store.
void store_gradients(LayerWeights& w);
void store_gradients(Projection& head);
inline Sink stored(const Sink& sink) {
  return sink.adds() ? store(sink.t) : sink;
}

/// Zeroes the gradients that even the first micro-batch adds to, for parameters that are not sharded.
void zero_added_gradients(Ctx& ctx, Parameters& params);

}  // namespace qtrain
