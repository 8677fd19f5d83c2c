#include <dnnl.hpp>

#include "bench/support.h"

namespace qtrain::bench {
namespace {

/// The yardstick: the same products as gemm_f32 through oneDNN's sgemm (OMP_NUM_THREADS sets its threads,
/// DNNL_MAX_CPU_ISA=AVX2 its vector units).
void onednn_f32(benchmark::State& state) {
  const dnnl_dim_t M = state.range(0), N = state.range(1), K = state.range(2);
  Buffer x(M, K), w(N, K), y(M, N);
  for (auto _ : state) {
    if (state.range(3) == kForward) dnnl::sgemm('N', 'T', M, N, K, 1, x.data(), K, w.data(), K, 0, y.data(), N);
    if (state.range(3) == kInputGradient) dnnl::sgemm('N', 'N', M, K, N, 1, y.data(), N, w.data(), K, 0, x.data(), K);
    if (state.range(3) == kWeightGradient) dnnl::sgemm('T', 'N', N, K, M, 1, y.data(), N, x.data(), K, 0, w.data(), K);
  }
  count_flops(state, 2.0 * static_cast<double>(M * N) * static_cast<double>(K));
}
BENCHMARK(onednn_f32)->Apply(training_shapes);

}  // namespace
}  // namespace qtrain::bench
