#pragma once
#include <string>

#include "core/formats/json.h"
#include "plan/ranks_estimate.h"
#include "plan/step_trace.h"

namespace qtrain {

/// Lines of `qtrain estimate` on several ranks: memory with each zero_stage, and the time of an optimizer step if the
/// links between the ranks are known.
std::string ranks_text(const RanksEstimate& e);
Json ranks_json(const RanksEstimate& e);
/// An optimizer step of a run that wrote timelines: the measured time next to the predicted one.
std::string trace_text(const TracedRun& run);
Json trace_json(const TracedRun& run);

}  // namespace qtrain
