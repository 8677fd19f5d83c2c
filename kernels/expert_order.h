#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Sorts the choices of all tokens by expert with a stable counting sort, so that each expert's rows are in token
/// order. experts i32 [T, k] in [0, E), read as n = T * k choices with the flat index i = t * k + j. offsets i32 [E +
/// 1]: expert e's choices are at positions [offsets[e], offsets[e + 1]); slots i32 [n]: the flat index at each
/// position; places i32 [n]: its inverse, the position of each flat index. Everything stays on the device: the host
/// never knows the number of rows per expert.
struct ExpertOrder {
  Tensor offsets, slots, places;
  ConstTensor experts;
};
void run_cpu(Ctx&, const ExpertOrder&);
void run_cuda(Ctx&, const ExpertOrder&);

inline void expert_order(Ctx& ctx, const ExpertOrder& a) {
  const std::int64_t n = a.experts.numel();
  check(a.offsets.numel() >= 2 && a.slots.numel() == n && a.places.numel() == n, "expert_order: shapes differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
