#pragma once
#include "bench/cases/cases.h"

namespace qtrain::bench {

struct Effort {
  double seconds;       ///< of measuring one case, about
  std::size_t rotated;  ///< bytes of operands to go through before one is used again: more than the caches hold
};
Effort effort_for(Device device);

/// Seconds of one run of the case: the median over rounds, each with another copy of the operands, which hold random
/// values (zeros are multiplied faster). On a GPU by events of its stream.
double median_seconds(Ctx& ctx, const Case& c, const Effort& effort);

/// Runs the case twice, the second time inside `around`: what is allocated and looked up once is not a part of that.
void run_once(Ctx& ctx, const Case& c, const std::function<void(const std::function<void()>& run)>& around);

}  // namespace qtrain::bench
