#include "kernels/clip.h"

#include "kernels/cuda/launch.cuh"

namespace qtrain::ops {
namespace {

__global__ void clip_factor(double* factor, const double* sums, const double* limits) {
  const double max = limits[0], loss_scale = limits[1], norm = sqrt(sums[1]) / loss_scale;
  const double shortened = max / (norm + 1e-6);
  factor[0] = (max > 0 && shortened < 1 ? shortened : 1.0) / loss_scale;
  factor[1] = sums[0] - sums[0] == 0 && sums[1] - sums[1] == 0 ? 1 : 0;  // Inf - Inf and NaN - NaN are NaN
}

}  // namespace

void run_cuda(Ctx& ctx, const Clip& a) {
  launch(ctx, "clip", clip_factor, {1, 1}, a.factor.as<double>(), a.sums.as<double>(), a.limits.as<double>());
}

}  // namespace qtrain::ops
