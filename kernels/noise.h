#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// y[t][c] += scale * magnitudes[t] * (2 u - 1), u = uniform(philox(keys[t], kNoiseStream, c / 4)[c % 4]): noise that
/// is uniform in +-scale * magnitudes[t] and depends on nothing but the key of its token. y [T, C], keys i64 [T],
/// magnitudes f32 [T]. The noise is computed in f32, with the same bits on all devices.
struct AddNoise {
  Tensor y;
  ConstTensor keys, magnitudes;
  double scale = 1;
};
inline constexpr std::uint64_t kNoiseStream = 0x4E4546;

void run_cpu(Ctx&, const AddNoise&);
void run_cuda(Ctx&, const AddNoise&);

inline void add_noise(Ctx& ctx, const AddNoise& a) {
  const std::int64_t rows = a.y.shape.rows();
  check(a.keys.numel() == rows && a.magnitudes.numel() == rows, "add_noise: shapes differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
