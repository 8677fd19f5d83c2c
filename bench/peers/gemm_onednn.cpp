// Times the GEMMs of a step (the cases named gemm/...) with oneDNN's sgemm and with ours, and prints their ratio.
//   gemm_onednn [FILTER]
// OMP_NUM_THREADS sets oneDNN's threads; DNNL_MAX_CPU_ISA=AVX2 sets its vector extension, QTRAIN_CPU_ISA=avx2 ours.
#include <cstdio>
#include <dnnl.hpp>

#include "bench/cases/measure.h"
#include "kernels/cpu/isa.h"

namespace qtrain::bench {
namespace {

/// The same GEMM with oneDNN: y = x W^T, dx = dy W or dW = dy^T x, according to the end of the name. Operands are C, A,
/// B.
Case through_onednn(Case c) {
  const bool transpose_a = c.name.ends_with("/dw"), transpose_b = c.name.ends_with("/forward");
  c.prepare = [=]() -> Run {
    return [=](Ctx&, std::span<const Argument> t) {
      const Tensor C = t[0].tensor, A = t[1].tensor, B = t[2].tensor;
      const dnnl_dim_t M = C.shape[0], N = C.shape[1], K = A.shape[transpose_a ? 0 : 1];
      dnnl::sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', M, N, K, 1, A.as<float>(), A.shape[1],
                  B.as<float>(), B.shape[1], t[0].adds ? 1.0f : 0.0f, C.as<float>(), N);
    };
  };
  return c;
}

void compare(const std::string& filter) {
  const Device host;
  Ctx ctx(host, MatmulPrecision::storage);
  std::printf("%s\n", describe_cpu().c_str());
  for (const Case& c : all_cases(sizes_for(host))) {
    if (!c.name.starts_with("gemm/") || c.name.find(filter) == std::string::npos) continue;
    const double ours = median_seconds(ctx, c, effort_for(host));
    const double theirs = median_seconds(ctx, through_onednn(c), effort_for(host));
    std::printf("%-46s %10.1f us, oneDNN %10.1f us, ratio %.2f\n", c.name.c_str(), ours * 1e6, theirs * 1e6,
                theirs / ours);
  }
}

}  // namespace
}  // namespace qtrain::bench

int main(int argc, char** argv) {
  qtrain::bench::compare(argc > 1 ? argv[1] : "");
}
