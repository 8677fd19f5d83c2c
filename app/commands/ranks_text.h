#pragma once
#include <string>

#include "core/formats/json.h"
#include "plan/ranks_estimate.h"
#include "plan/step_trace.h"

namespace qtrain {

/// What `qtrain estimate` says of several ranks: memory with each zero_stage, and where it is known how they are
/// connected the time of an update.
std::string ranks_text(const RanksEstimate& e);
Json ranks_json(const RanksEstimate& e);
/// An update of a run that has written timelines: what was measured beside what the schedule says.
std::string trace_text(const TracedRun& run);
Json trace_json(const TracedRun& run);

}  // namespace qtrain
