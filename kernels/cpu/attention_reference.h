#pragma once
#include "kernels/attention.h"

/// Row-by-row attention in the op's own arithmetic: the specification of the blocked kernels, and what f64 runs on.
namespace qtrain::ops {

template <class T>
void attention_reference(Ctx& ctx, const Attention& a);
template <class T>
void attention_grad_reference(Ctx& ctx, const AttentionGrad& a);

}  // namespace qtrain::ops
