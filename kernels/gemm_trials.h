#pragma once
#include <cstddef>
#include <functional>

namespace qtrain {

/// Returns the index of the fastest of `count` candidates. Candidate 0 is the library's first suggestion; another one
/// is chosen only if it is faster by more than noise. `milliseconds(i)` runs candidate i once and returns its time, or
/// infinity if it fails. Candidates take turns, so that changes of the clock rate affect all alike, and the shortest
/// time of each counts. Those that are much slower than the fastest drop out after the first turn.
std::size_t fastest_candidate(std::size_t count, const std::function<double(std::size_t)>& milliseconds);

}  // namespace qtrain
