#include "optim/plateau.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qtrain {
namespace {

bool is_better(const PlateauRules& rules, double metric, double best) {
  const bool relative = rules.threshold_mode == ThresholdMode::relative;
  if (rules.mode == Better::lower) return metric < (relative ? best * (1.0 - rules.threshold) : best - rules.threshold);
  return metric > (relative ? best * (rules.threshold + 1.0) : best + rules.threshold);
}

}  // namespace

void Plateau::add(const PlateauRules& rules, double metric) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double worst = rules.mode == Better::lower ? kInfinity : -kInfinity;
  ++bad;
  if (is_better(rules, metric, best.value_or(worst))) {
    best = metric;
    bad = 0;
  }
  if (cooldown > 0) {
    --cooldown;
    bad = 0;
  }
  if (bad <= rules.patience) return;
  ++reductions;
  cooldown = rules.cooldown;
  bad = 0;
}

double reduced_rate(const PlateauRules& rules, double rate, std::int64_t reductions) {
  for (std::int64_t i = 0; i < reductions; ++i) {
    const double lower = std::max(rate * rules.factor, rules.min_lr);
    if (!(rate - lower > rules.eps)) return rate;  // nor will further ones
    rate = lower;
  }
  return rate;
}

}  // namespace qtrain
