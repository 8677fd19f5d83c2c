#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/quantise4.h"

namespace qtrain::ops {
namespace {

/// Rows of W that are written down at a time: eight columns of a tile of C.
constexpr std::int64_t kRows = 8;

template <class T>
void multiply(Ctx& ctx, const Gemm4& g) {
  const std::int64_t M = g.a.shape[0], K = g.a.shape[1], N = g.w.shape[0];
  const Gemm plain{.c = g.c, .a = g.a, .b = {}, .alpha = g.alpha, .bias = g.bias};
  const FinishTile finish = finish_tile_for(plain);
  const Scales scales(g.w);
  const T* a = g.a.as<T>();
  const std::int64_t tasks = ceil_div(N, kRows);
  check(static_cast<std::size_t>(K) * sizeof(float) <= Ctx::kWorkspaceBytes, "gemm4: rows are too long");
  ctx.pool().run(tasks, [&](std::int64_t task, int worker) {
    auto* row = reinterpret_cast<float*>(ctx.workspace(worker).data());
    const std::int64_t begin = task * kRows, count = std::min(kRows, N - begin);
    float tile[Gemm4::kFewRows * kRows] = {};
    for (std::int64_t n = 0; n < count; ++n) {
      expand<float>(g.w, scales, (begin + n) * K, (begin + n + 1) * K, row);
      for (std::int64_t m = 0; m < M; ++m) tile[m * kRows + n] = simd::dot<float>(a + m * K, row, K);
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
