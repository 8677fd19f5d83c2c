#pragma once
#include "model/adapter_gemms.h"

namespace qtrain {

/// Activation elements per token that the GEMMs of adapters read and write in addition to their layers' own, in all
/// blocks and the head. An adapter's GEMMs have so few columns that only memory traffic limits them.
struct AdapterPasses {
  double forward = 0, backward = 0;  ///< one pass through all blocks
  double head = 0;                   ///< forward and backward of the head, for a token that reaches it
};

/// Counts, for layers that share an input of `in` elements and have `out` outputs: in the forward pass A reads the
/// input and B writes the outputs, and reads them if they are sums with the residual stream; in the backward pass B and
/// its gradient read the output gradients, and A reads the input and writes its gradient. On a processor, B and the
/// gradient of the input are part of the layers' own pass (see model/projection.h). Dropout and magnitudes add passes
/// of their own. `tokens` is the largest number in a micro-batch; if adapters are in the GEMMs of their layers, the
/// outputs are not read and written for B, and the gradient of the input not for A, but those of the outputs are
/// copied. With 16-bit activations on a GPU, B and its gradient share a pass (ops::reads_once).
AdapterPasses adapter_passes(const Transformer& model, AdapterGemms gemms = AdapterGemms::apart,
                             std::int64_t tokens = 0);

/// A layer in a pass over micro-batches of up to `tokens` tokens.
struct LayerInPass {
  std::size_t layer;
  std::int64_t tokens;
};
/// The groups of a layer that are computed with their adapters: how many, the number of adapters in them, and the
/// elements of their weights, of which each forward pass makes a copy. gradient_groups, gradient_weights: those of
/// which each backward pass makes a copy. adapters_once: those for which gradients of outputs are read once, in
/// launches_once launches.
struct JoinedAdapters {
  double groups = 0, adapters = 0, weights = 0;
  double gradient_groups = 0, gradient_weights = 0;
  double launches_once = 0, adapters_once = 0;
};
JoinedAdapters joined_adapters(const Transformer& model, AdapterGemms gemms, const LayerInPass& of);

}  // namespace qtrain
