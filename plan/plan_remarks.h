#pragma once
#include <string>
#include <vector>

#include "plan/ways_to_fit.h"

namespace qtrain {

/// Remarks on memory-saving settings that the run does not need, because the plan without them fits in nine tenths of
/// the memory: recomputation, offloading, quantized weights, smaller optimizer states. Each is a sentence with key,
/// reason and remedy.
std::vector<std::string> plan_remarks(const PlanQuestion& question);

}  // namespace qtrain
