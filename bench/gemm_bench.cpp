#include "kernels/grouped_gemm.h"

#include "bench/support.h"

namespace qtrain::bench {
namespace {

using ops::Transpose;

void product(benchmark::State& state, MatmulPrecision precision) {
  const std::int64_t M = state.range(0), N = state.range(1), K = state.range(2);
  Ctx ctx({}, precision);
  Buffer x(M, K), w(N, K), y(M, N);
  for (auto _ : state) {
    if (state.range(3) == kForward) ops::gemm(ctx, {.c = store(y), .a = x, .b = w, .transpose_b = Transpose::yes});
    if (state.range(3) == kInputGradient) ops::gemm(ctx, {.c = store(x), .a = y, .b = w});
    if (state.range(3) == kWeightGradient)
      ops::gemm(ctx, {.c = store(w), .a = y, .b = x, .transpose_a = Transpose::yes});
  }
  count_flops(state, 2.0 * static_cast<double>(M * N) * static_cast<double>(K));
}
void gemm_f32(benchmark::State& state) {
  product(state, MatmulPrecision::storage);
}
void gemm_bf16(benchmark::State& state) {
  product(state, MatmulPrecision::bf16);
}
BENCHMARK(gemm_f32)->Apply(training_shapes);
BENCHMARK(gemm_bf16)->Apply(training_shapes);

/// y += x B^T with the adapter's inner dimension 16, and x A^T with 16 columns.
void gemm_adapter(benchmark::State& state) {
  const std::int64_t M = state.range(0), N = state.range(1), K = state.range(2);
  Ctx ctx;
  Buffer x(M, K), w(N, K), y(M, N);
  for (auto _ : state) ops::gemm(ctx, {.c = accumulate(y), .a = x, .b = w, .transpose_b = Transpose::yes, .alpha = 2});
  count_flops(state, 2.0 * static_cast<double>(M * N) * static_cast<double>(K));
}
BENCHMARK(gemm_adapter)->ArgNames({"M", "N", "K"})->Args({1024, 16, 576})->Args({1024, 576, 16})->UseRealTime();

/// One to eight tokens of generation: bound by reading the weight.
template <class W>
void gemm_decode(benchmark::State& state) {
  const std::int64_t M = state.range(0), N = state.range(1), K = state.range(2);
  Ctx ctx;
  Buffer x(M, K), y(M, N);
  Buffer<W> w(N, K);
  for (auto _ : state) ops::gemm(ctx, {.c = store(y), .a = x, .b = w, .transpose_b = Transpose::yes});
  count_bytes(state, static_cast<double>(N * K) * sizeof(W));
}
BENCHMARK(gemm_decode<float>)->Args({1, 1536, 576})->Args({1, 49152, 576})->Args({8, 49152, 576})->UseRealTime();
BENCHMARK(gemm_decode<Bf16>)->Args({1, 1536, 576})->Args({1, 49152, 576})->Args({8, 49152, 576})->UseRealTime();

/// Rows of experts of unequal size: expert e has about twice the mean times e / E.
std::vector<std::int32_t> expert_offsets(std::int64_t rows, std::int64_t experts) {
  std::vector<std::int32_t> offsets;
  for (std::int64_t e = 0; e <= experts; ++e)
    offsets.push_back(static_cast<std::int32_t>(rows * e * e / (experts * experts)));
  return offsets;
}

enum class Products : std::uint8_t { grouped, one_by_one };

/// The up projections of E experts [N, K] with R rows in all, way: as for `product`.
void experts(benchmark::State& state, Products products) {
  const std::int64_t E = state.range(0), R = state.range(1), N = state.range(2), K = state.range(3);
  Ctx ctx;
  Buffer<Bf16> w(E, N, K);
  Buffer x(R, K), y(R, N), dw(E, N, K);
  std::vector<std::int32_t> at = expert_offsets(R, E);
  const ConstTensor offsets = view_of(std::span<std::int32_t>(at), {E + 1});
  const bool gradient = state.range(4) == kWeightGradient;
  const auto one_by_one = [&] {
    for (std::int64_t e = 0; e < E; ++e) {
      const std::int64_t first = at[static_cast<std::size_t>(e)], rows = at[static_cast<std::size_t>(e) + 1] - first;
      const auto matrix = [&](Tensor t) { return t.slice(e, 1).reshaped({N, K}); };
      const Tensor a = Tensor(x).slice(first, rows), c = Tensor(y).slice(first, rows);
      if (gradient)
        ops::gemm(ctx, {.c = store(matrix(dw)), .a = c, .b = a, .transpose_a = Transpose::yes});
      else
        ops::gemm(ctx, {.c = store(c), .a = a, .b = matrix(w), .transpose_b = Transpose::yes});
    }
  };
  for (auto _ : state) {
    if (products == Products::one_by_one)
      one_by_one();
    else if (gradient)
      ops::grouped_gemm_grad(ctx, {.c = store(dw), .a = y, .b = x, .offsets = offsets});
    else
      ops::grouped_gemm(ctx, {.c = store(y), .a = x, .b = w, .offsets = offsets, .transpose_b = Transpose::yes});
  }
  count_flops(state, 2.0 * static_cast<double>(R * N) * static_cast<double>(K));
}
void gemm_experts_grouped(benchmark::State& state) {
  experts(state, Products::grouped);
}
void gemm_experts_one_by_one(benchmark::State& state) {
  experts(state, Products::one_by_one);
}
/// E, R, N, K, way: one token and 256 of a model with 64 experts of which a token gets 8, and a few large experts.
void expert_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"E", "R", "N", "K", "way"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const std::int64_t way : {kForward, kWeightGradient}) {
    for (const std::int64_t R : {8, 2048}) b->Args({64, R, 384, 512, way});
    b->Args({8, 1024, 1024, 512, way});
  }
}
BENCHMARK(gemm_experts_grouped)->Apply(expert_shapes);
BENCHMARK(gemm_experts_one_by_one)->Apply(expert_shapes);

}  // namespace
}  // namespace qtrain::bench
