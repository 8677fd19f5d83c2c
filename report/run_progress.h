#pragma once
#include <cstdint>

#include "core/log.h"
#include "report/metrics.h"
#include "train/checkpoint/run_state.h"

namespace qtrain {

/// The progress line of a run, at the pace of this start of the program, evaluations and saves included: the loss is
/// the mean since the last logged row, as in that row (NaN where none was finite); the time left is that of as many
/// steps at the mean pace, so that long and short steps, and evaluations now and then, do not move it much.
Progress progress_of(const RunState& state, std::int64_t max_steps, const Pace& pace);

}  // namespace qtrain
