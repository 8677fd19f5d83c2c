#include "kernels/gemm.h"

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

}  // namespace
}  // namespace qtrain::bench
