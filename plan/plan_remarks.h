#pragma once
#include <string>
#include <vector>

#include "plan/ways_to_fit.h"

namespace qtrain {

/// What a config pays for and does not need, by the plans without it: recomputation, memory of the host, quantized
/// weights and smaller states where all of it would fit in nine tenths of the memory. A sentence each: key, cause,
/// remedy.
std::vector<std::string> plan_remarks(const PlanQuestion& question);

}  // namespace qtrain
