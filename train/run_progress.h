#pragma once
#include <cstdint>

#include "core/log.h"
#include "train/run_state.h"

namespace qtrain {

/// What this start of the program has done of a run.
struct Pace {
  double seconds = 0;                  ///< since its first step, with evaluations and saves
  std::int64_t steps = 0, tokens = 0;  ///< in that time
};

/// The progress line of a run: the loss is the mean since the last logged row, as in that row; the time left is that of
/// as many steps at the mean pace, so that long and short steps, and evaluations now and then, do not move it much.
Progress progress_of(const RunState& state, std::int64_t max_steps, const Pace& pace);

}  // namespace qtrain
