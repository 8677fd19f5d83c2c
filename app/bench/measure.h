#pragma once
#include "app/bench/cases.h"

namespace qtrain::bench {

struct Effort {
  double seconds;       ///< of measuring one case, about
  std::size_t rotated;  ///< bytes of operands to go through before one is used again: more than the caches hold
};
Effort effort_for(Device device);

/// Seconds of one run of the case: the median over rounds, each with another copy of the operands, which hold random
/// values (zeros are multiplied faster). On a GPU by events of its stream.
double median_seconds(Ctx& ctx, const Case& c, const Effort& effort);

}  // namespace qtrain::bench
