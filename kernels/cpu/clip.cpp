#include "kernels/clip.h"

#include <cmath>

namespace qtrain::ops {

void run_cpu(Ctx&, const Clip& a) {
  const double *sums = a.sums.as<double>(), *limits = a.limits.as<double>();
  const double max = limits[0], loss_scale = limits[1], norm = std::sqrt(sums[1]) / loss_scale;
  double* factor = a.factor.as<double>();
  const double shortened = max / (norm + 1e-6);
  factor[0] = (max > 0 && shortened < 1 ? shortened : 1.0) / loss_scale;
  factor[1] = std::isfinite(sums[0]) && std::isfinite(sums[1]) ? 1 : 0;
}

}  // namespace qtrain::ops
