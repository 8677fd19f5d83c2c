#include "optim/loss_scale.h"

#include <limits>

namespace qtrain {
namespace {

constexpr double kGrowth = 2, kBackoff = 0.5, kMax = std::numeric_limits<float>::max();
constexpr std::int64_t kInterval = 2000;

}  // namespace

void LossScale::count(bool finite) {
  clean_steps = finite ? clean_steps + 1 : 0;
  if (!finite) value *= kBackoff;
  if (clean_steps < kInterval) return;
  clean_steps = 0;
  if (value * kGrowth <= kMax) value *= kGrowth;
}

}  // namespace qtrain
