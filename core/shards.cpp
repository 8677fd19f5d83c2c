#include "core/shards.h"

#include <algorithm>
#include <numeric>

#include "core/param_store.h"

namespace qtrain {
namespace {

std::int64_t aligned(std::int64_t elements) {
  return (elements + kShardAlign - 1) / kShardAlign * kShardAlign;
}

std::int64_t size_of(const Param& p) {
  return aligned(p.spec.shape.numel());
}

// Places parameters one after the other and cuts them into equal rows.
void fill_rows(ShardGroup& group, int ranks) {
  std::int64_t end = 0;
  for (const Param* p : group.params) {
    group.begins.push_back(end);
    end += size_of(*p);
  }
  const std::int64_t row = aligned((end + ranks - 1) / ranks);
  for (int r = 0; r <= ranks; ++r) group.rows.push_back(r * row);
}

// Assigns whole parameters, largest first, each to the rank with the smallest load.
void assign_whole(ShardGroup& group, int ranks) {
  std::vector<std::size_t> order(group.params.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return size_of(*group.params[i]); });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks));
  std::vector<std::size_t> owner(order.size());
  group.begins.resize(order.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(loads);
    owner[i] = static_cast<std::size_t>(least - loads.begin());
    group.begins[i] = *least;
    *least += size_of(*group.params[i]);
  }
  group.rows.assign(loads.size() + 1, 0);
  std::partial_sum(loads.begin(), loads.end(), group.rows.begin() + 1);
  for (std::size_t i = 0; i < owner.size(); ++i) group.begins[i] += group.rows[owner[i]];
}

}  // namespace

std::int64_t ShardGroup::longest_row() const {
  std::int64_t longest = 0;
  for (std::size_t r = 0; r + 1 < rows.size(); ++r) longest = std::max(longest, rows[r + 1] - rows[r]);
  return longest;
}

void divide_evenly(ShardGroup& group, int ranks) {
  group.cut == Cut::anywhere ? fill_rows(group, ranks) : assign_whole(group, ranks);
}

}  // namespace qtrain
