#include "kernels/expert_order.h"

#include <vector>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {

void run_cpu(Ctx&, const ExpertOrder& a) {
  const auto experts = a.experts.span<std::int32_t>();
  const auto offsets = a.offsets.span<std::int32_t>(), slots = a.slots.span<std::int32_t>(),
             places = a.places.span<std::int32_t>();
  const std::size_t E = offsets.size() - 1;
  std::fill(offsets.begin(), offsets.end(), 0);
  for (const std::int32_t e : experts) {
    check(e >= 0 && static_cast<std::size_t>(e) < E, "expert_order: an expert does not exist");
    ++offsets[static_cast<std::size_t>(e) + 1];
  }
  for (std::size_t e = 0; e < E; ++e) offsets[e + 1] += offsets[e];
  std::vector<std::int32_t> next(offsets.begin(), offsets.end() - 1);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::int32_t place = next[static_cast<std::size_t>(experts[i])]++;
    places[i] = place;
    slots[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(i);
  }
}

}  // namespace qtrain::ops
