#pragma once
#include "kernels/cpu/loops.h"
#include "kernels/gemm.h"

namespace qtrain::ops {

/// The reference for Gemm: one sum per element in ascending k, in f64 for f64 operands, else in f32.
template <class Ta, class Tb, class Tc>
void gemm_reference(Ctx& ctx, const Gemm& g) {
  using A = std::conditional_t<std::is_same_v<Ta, double>, double, float>;
  const bool ta = g.transpose_a == Transpose::yes, tb = g.transpose_b == Transpose::yes;
  const std::int64_t M = g.c.t.shape[0], N = g.c.t.shape[1], K = g.a.shape[ta ? 0 : 1];
  const std::int64_t a_step = row_step(g.a, g.a_stride), b_step = row_step(g.b, g.b_stride),
                     c_step = row_step(g.c.t, g.c_stride);
  const std::int64_t a_row = ta ? 1 : a_step, a_k = ta ? a_step : 1, b_col = tb ? b_step : 1, b_k = tb ? 1 : b_step;
  const Ta* a = g.a.as<Ta>();
  const Tb* b = g.b.as<Tb>();
  Tc* c = g.c.t.as<Tc>();
  for_rows(ctx, M, N * std::max<std::int64_t>(K, 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < N; ++j) {
        A sum = 0;
        for (std::int64_t k = 0; k < K; ++k)
          sum += static_cast<A>(a[i * a_row + k * a_k]) * static_cast<A>(b[j * b_col + k * b_k]);
        sum *= static_cast<A>(g.alpha);
        if (g.bias) dispatch_float(g.bias.dtype, [&]<class T>() { sum += static_cast<A>(g.bias.as<T>()[j]); });
        if (g.c.adds()) sum += static_cast<A>(c[i * c_step + j]);
        c[i * c_step + j] = static_cast<Tc>(sum);
      }
  });
}

}  // namespace qtrain::ops
