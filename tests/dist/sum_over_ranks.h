#pragma once
#include <span>
#include <vector>

#include "dist/collective.h"

namespace qtrain::test {

/// The sum of a number over all ranks.
inline double sum_over_ranks(Ctx& ctx, Collective& ranks, double value) {
  std::vector<double> values{value};
  ranks.all_reduce(ctx, view_of(std::span(values), {1}), Reduction::sum);
  return values[0];
}

}  // namespace qtrain::test
