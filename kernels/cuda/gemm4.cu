#include "kernels/cuda/quantize.cuh"
#include "kernels/quantize.h"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kMax = static_cast<int>(Gemm4::kFewRows);

template <class C, class A>
struct FewRows {
  Target<C> c;
  const A* a;
  const float* bias;        ///< null: no bias,
  const A* narrow_bias;     ///< or a bias in A's type
  std::int64_t N, K, step;  ///< step: elements between rows of C
  int M;
  float alpha;
};

/// One warp per row of W: lanes take N adjacent elements in turn and multiply them by all rows of A; the lanes' sums
/// are reduced at the end.
template <class C, class A, int N>
__global__ void __launch_bounds__(kThreads, 8) gemm4_rows(FewRows<C, A> g, FourBitParts w) {
  const float* map = load_map(w);
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= g.N) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  float sums[kMax] = {};
  for (std::int64_t k = lane * N; k < g.K; k += kWarp * N) {
    const std::int64_t i = row * g.K + k;
    const float scale = w.scale(i);
    float v[N];
    if constexpr (N == 1) {
      v[0] = map[w.code(i)] * scale;
    } else {
      const auto codes = load_codes<N>(w.codes + i / 2);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = map[j % 2 == 0 ? codes.v[j / 2] >> 4 : codes.v[j / 2] & 15] * scale;
    }
#pragma unroll
    for (int m = 0; m < kMax; ++m) {
      if (m >= g.M) break;
      const Pack<A, N> x = load_pack<N>(g.a + m * g.K + k);
#pragma unroll
      for (int j = 0; j < N; ++j) sums[m] += to_float(x.v[j]) * v[j];
    }
  }
  const float bias = g.bias ? g.bias[row] : g.narrow_bias ? to_float(g.narrow_bias[row]) : 0.0f;
#pragma unroll
  for (int m = 0; m < kMax; ++m) {
    if (m >= g.M) break;
    const float sum = g.alpha * warp_sum(sums[m]) + bias;
    if (lane == 0) g.c.put(m * g.step + row, sum);
  }
}

template <class C, class A>
void multiply(Ctx& ctx, const Gemm4& g) {
  const bool wide = g.bias && g.bias.dtype == DType::f32;
  const FewRows<C, A> rows{.c = target_of<C>(g.c),
                           .a = g.a.as<A>(),
                           .bias = wide ? g.bias.as<float>() : nullptr,
                           .narrow_bias = g.bias && !wide ? g.bias.as<A>() : nullptr,
                           .N = g.w.shape[0],
                           .K = g.w.shape[1],
                           .step = row_step(g.c.t, g.c_stride),
                           .M = static_cast<int>(g.a.shape[0]),
                           .alpha = static_cast<float>(g.alpha)};
  const FourBitParts w(g.w);
  const auto run = [&]<int N>() {
    const auto blocks = static_cast<unsigned>(ceil_div(rows.N, std::int64_t{kWarps}));
    launch(ctx, "gemm4", gemm4_rows<C, A, N>, {blocks, kThreads, sizeof(MapOfFour)}, rows, w);
  };
  const bool aligned = rows.K % 8 == 0 && reinterpret_cast<std::uintptr_t>(rows.a) % 16 == 0 &&
                       reinterpret_cast<std::uintptr_t>(w.codes) % 4 == 0;
  return aligned ? run.template operator()<8>() : run.template operator()<1>();
}

}  // namespace

void run_cuda(Ctx& ctx, const Gemm4& g) {
  dispatch_storage(g.a.dtype, [&]<class A>() {
    if (g.c.t.dtype == DType::f32) return multiply<float, A>(ctx, g);
    multiply<A, A>(ctx, g);
  });
}

}  // namespace qtrain::ops
