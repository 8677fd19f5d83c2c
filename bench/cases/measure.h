#pragma once
#include "bench/cases/cases.h"

namespace qtrain::bench {

struct Effort {
  double seconds;       ///< approximate time to spend on one case
  std::size_t rotated;  ///< bytes of operands to cycle through before one is used again: more than the caches hold
};
Effort effort_for(Device device);

/// Seconds per run of the case: the median over rounds, each with a different copy of the operands, which hold random
/// values (zeros multiply faster). On a GPU measured with stream events.
double median_seconds(Ctx& ctx, const Case& c, const Effort& effort);

/// Runs the case twice, the second time inside `around`, so that one-time allocations and lookups are excluded.
void run_once(Ctx& ctx, const Case& c, const std::function<void(const std::function<void()>& run)>& around);

}  // namespace qtrain::bench
