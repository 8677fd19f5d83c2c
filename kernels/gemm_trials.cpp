#include "kernels/gemm_trials.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace qtrain {

std::size_t fastest_candidate(std::size_t count, const std::function<double(std::size_t)>& milliseconds) {
  constexpr int kTurns = 6;
  constexpr double kHopeless = 1.3;  // multiple of the fastest time
  constexpr double kWorthIt = 0.97;  // fraction of the first suggestion's time; smaller gains may be noise
  if (count < 2) return 0;
  milliseconds(0);  // the very first run is slower, whichever candidate it is of
  std::vector<double> least(count, std::numeric_limits<double>::infinity());
  double fastest = least.front();
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t i = 0; i < count; ++i) {
      if (turn > 0 && least[i] > kHopeless * fastest) continue;
      least[i] = std::min(least[i], milliseconds(i));
      fastest = std::min(fastest, least[i]);
    }
  const auto best = static_cast<std::size_t>(std::min_element(least.begin(), least.end()) - least.begin());
  return least[best] < kWorthIt * least.front() ? best : 0;
}

}  // namespace qtrain
