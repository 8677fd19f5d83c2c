#pragma once
#include "kernels/attention.h"

/// Row-by-row attention in the op's own arithmetic: the reference for the blocked kernels, and the implementation for
/// f64.
namespace qtrain::ops {

template <class T>
void attention_reference(Ctx& ctx, const Attention& a);
template <class T>
void attention_grad_reference(Ctx& ctx, const AttentionGrad& a);

}  // namespace qtrain::ops
