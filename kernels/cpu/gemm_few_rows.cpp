#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/gemm_finish.h"

namespace qtrain::ops {
namespace {

using simd::Vec;

constexpr int kColumns = 4, kRows = 2;  // dot products at a time

template <class Ta, class Tb>
struct Operands {
  const Ta* a;
  const Tb* b;
  std::int64_t K, a_step, b_step;
};

/// tile[i][j] = a_i . b_j for M rows and kColumns columns.
template <int M, class Ta, class Tb>
void dots(const Operands<Ta, Tb>& in, float* tile) {
  Vec<float> sums[M][kColumns] = {};
  simd::each<float>(in.K, [&](std::int64_t k, auto lanes) {
    Vec<float> b[kColumns];
    for (int j = 0; j < kColumns; ++j) b[j] = simd::load<float>(in.b + j * in.b_step + k, lanes);
    for (int i = 0; i < M; ++i) {
      const Vec<float> a = simd::load<float>(in.a + i * in.a_step + k, lanes);
      for (int j = 0; j < kColumns; ++j) sums[i][j] += a * b[j];
    }
  });
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < kColumns; ++j) tile[i * 8 + j] = simd::sum(sums[i][j]);
}

template <class Ta, class Tb>
void run(Ctx& ctx, const Gemm& g) {
  const std::int64_t M = g.c.t.shape[0], N = g.c.t.shape[1], K = g.a.shape[1];
  const std::int64_t a_step = row_step(g.a, g.a_stride), b_step = row_step(g.b, g.b_stride);
  const auto* a = reinterpret_cast<const Ta*>(g.a.data);
  const auto* b = reinterpret_cast<const Tb*>(g.b.data);
  const FinishTile finish = finish_tile_for(g);
  for_rows(ctx, ceil_div(N, kColumns), kColumns * std::max<std::int64_t>(K, 1),
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t block = begin; block < end; ++block) {
               // Fewer columns than a block, at the end, are done one by one.
               const std::int64_t column = block * kColumns, columns = std::min<std::int64_t>(kColumns, N - column);
               float tile[kRows * 8] = {};
               for (std::int64_t i = 0; i < M; i += kRows) {
                 const std::int64_t rows = std::min<std::int64_t>(kRows, M - i);
                 const Operands<Ta, Tb> in{a + i * a_step, b + column * b_step, K, a_step, b_step};
                 if (columns < kColumns) {
                   for (std::int64_t r = 0; r < rows; ++r)
                     for (std::int64_t j = 0; j < columns; ++j)
                       tile[r * 8 + j] = simd::dot<float>(in.a + r * a_step, in.b + j * b_step, K);
                 } else if (rows == kRows) {
                   dots<kRows>(in, tile);
                 } else {
                   dots<1>(in, tile);
                 }
                 finish(g, {.data = tile, .stride = 8, .row = i, .column = column, .rows = rows, .columns = columns});
               }
             }
           });
}

}  // namespace

void gemm_few_rows(Ctx& ctx, const Gemm& g) {
  const auto with_b = [&]<class Ta>() {
    if (g.b.dtype == DType::bf16) return run<Ta, Bf16>(ctx, g);
    run<Ta, float>(ctx, g);
  };
  if (g.a.dtype == DType::bf16) return with_b.template operator()<Bf16>();
  with_b.template operator()<float>();
}

}  // namespace qtrain::ops
