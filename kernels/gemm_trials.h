#pragma once
#include <cstddef>
#include <functional>

namespace qtrain {

/// The index of the fastest of `count` candidates, of which number 0 is the library's first suggestion: another is
/// chosen only if it is faster by more than noise. `milliseconds(i)` runs candidate i once and returns its time, or an
/// infinite one if it fails. The candidates take turns, so that a change of the clock rate affects all alike, and their
/// shortest times count; those that are much slower than the fastest drop out after the first turn.
std::size_t fastest_candidate(std::size_t count, const std::function<double(std::size_t)>& milliseconds);

}  // namespace qtrain
