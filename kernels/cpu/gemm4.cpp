#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/quantise4.h"

namespace qtrain::ops {
namespace {

using simd::Vec;

/// Rows of W that are written down at a time: eight columns of a tile of C.
constexpr std::int64_t kRows = 8;

/// A row of W, as f32, with M rows of A: sums[i * kRows] = a_i . w, each in M or more independent chains.
template <int M, class T>
void dots(const T* a, const float* w, std::int64_t K, float* sums) {
  constexpr int kChains = M == 1 ? 4 : 1, kStep = kChains * simd::kLanes<float>;
  Vec<float> s[M][kChains] = {};
  std::int64_t k = 0;
  for (; k + kStep <= K; k += kStep)
    for (int c = 0; c < kChains; ++c) {
      const std::int64_t at = k + std::int64_t{c} * simd::kLanes<float>;
      const Vec<float> v = simd::load<float>(w + at);
      for (int i = 0; i < M; ++i) s[i][c] += v * simd::load<float>(a + i * K + at);
    }
  simd::each<float>(K - k, [&](std::int64_t j, auto lanes) {
    const Vec<float> v = simd::load<float>(w + k + j, lanes);
    for (int i = 0; i < M; ++i) s[i][0] += v * simd::load<float>(a + i * K + k + j, lanes);
  });
  for (int i = 0; i < M; ++i) {
    for (int c = 1; c < kChains; ++c) s[i][0] += s[i][c];
    sums[i * kRows] = simd::sum(s[i][0]);
  }
}

template <class T>
void multiply(Ctx& ctx, const Gemm4& g) {
  const std::int64_t M = g.a.shape[0], K = g.a.shape[1], N = g.w.shape[0];
  const Gemm plain{.c = g.c, .a = g.a, .b = {}, .alpha = g.alpha, .bias = g.bias};
  const FinishTile finish = finish_tile_for(plain);
  const Expansion<float> weights(g.w);
  const T* a = g.a.as<T>();
  const std::int64_t tasks = ceil_div(N, kRows);
  check(static_cast<std::size_t>(K) * sizeof(float) <= Ctx::kWorkspaceBytes, "gemm4: rows are too long");
  ctx.pool().run(tasks, [&](std::int64_t task, int worker) {
    auto* row = reinterpret_cast<float*>(ctx.workspace(worker).data());
    const std::int64_t begin = task * kRows, count = std::min(kRows, N - begin);
    float tile[Gemm4::kFewRows * kRows] = {};
    for (std::int64_t n = 0; n < count; ++n) {
      weights.range((begin + n) * K, (begin + n + 1) * K, row);
      std::int64_t m = 0;
      for (; m + 4 <= M; m += 4) dots<4>(a + m * K, row, K, tile + m * kRows + n);
      for (; m < M; ++m) dots<1>(a + m * K, row, K, tile + m * kRows + n);
    }
    finish(plain, {.data = tile, .stride = kRows, .row = 0, .column = begin, .rows = M, .columns = count});
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Gemm4& g) {
  if (g.a.dtype == DType::bf16) return multiply<Bf16>(ctx, g);
  multiply<float>(ctx, g);
}

}  // namespace qtrain::ops
