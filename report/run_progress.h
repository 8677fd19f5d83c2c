#pragma once
#include <cstdint>

#include "core/log.h"
#include "report/metrics.h"
#include "train/checkpoint/run_state.h"

namespace qtrain {

/// The progress line of a run. The loss is the mean since the last logged row (NaN if none was finite). Speed and time
/// left follow from the mean pace since this process started, evaluations and saves included, so that single slow steps
/// do not change them much.
Progress progress_of(const RunState& state, std::int64_t max_steps, const Pace& pace);

}  // namespace qtrain
