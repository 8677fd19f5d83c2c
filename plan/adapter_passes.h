#pragma once
#include "model/transformer.h"

namespace qtrain {

/// Elements of a token's activations that GEMMs of adapters read and write beside those of their layers, in all blocks
/// and the head. An adapter's GEMMs have too few columns to be bound by anything else.
struct AdapterPasses {
  double forward = 0, backward = 0;  ///< of all blocks, once
  double head = 0;                   ///< of the head, both ways, for a token that reaches it
};

/// Of layers that read one input of `in` elements and give `out`: forward A reads the input, B reads and writes the
/// results; backward B and its gradient read theirs, A reads the input, and reads and writes its gradient. On a
/// processor B and the gradient of the input are in the layers' own pass (see model/projection.h). Dropout and
/// magnitudes have passes of their own.
AdapterPasses adapter_passes(const Transformer& model);

}  // namespace qtrain
