#include "data/sampler.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/rng.h"

namespace qtrain {
namespace {

/// floor(u * bound / 2^64) for 64 random bits u, in 32-bit halves.
std::uint64_t below(std::uint64_t bound, const std::array<std::uint32_t, 4>& words) {
  const std::uint64_t low = std::uint64_t{words[0]} * (bound & 0xffffffffu);
  const std::uint64_t mid1 = std::uint64_t{words[0]} * (bound >> 32),
                      mid2 = std::uint64_t{words[1]} * (bound & 0xffffffffu);
  const std::uint64_t carry = (low >> 32) + (mid1 & 0xffffffffu) + (mid2 & 0xffffffffu);
  return std::uint64_t{words[1]} * (bound >> 32) + (mid1 >> 32) + (mid2 >> 32) + (carry >> 32);
}

}  // namespace

std::vector<std::int64_t> random_permutation(std::int64_t n, const PermutationKey& key) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t stream = key.epoch ^ std::uint64_t{key.salt} << 32;
  for (std::int64_t i = n - 1; i > 0; --i) {
    const auto j = below(static_cast<std::uint64_t>(i) + 1, philox(key.seed, stream, static_cast<std::uint64_t>(i)));
    std::swap(order[static_cast<std::size_t>(i)], order[j]);
  }
  return order;
}

void group_by_length(std::vector<std::int64_t>& order, std::span<const std::int64_t> lengths, std::int64_t group) {
  const auto n = static_cast<std::int64_t>(order.size());
  if (n == 0) return;
  const auto length_of = [&](std::int64_t row) { return lengths[static_cast<std::size_t>(row)]; };
  const std::int64_t megabatch = group * std::max<std::int64_t>(std::min<std::int64_t>(n / (4 * group), 50), 1);
  std::int64_t longest = 0;
  for (std::int64_t begin = 0; begin < n; begin += megabatch) {
    std::stable_sort(order.begin() + begin, order.begin() + std::min(n, begin + megabatch),
                     [&](std::int64_t a, std::int64_t b) { return length_of(a) > length_of(b); });
    const auto at = [&](std::int64_t i) { return length_of(order[static_cast<std::size_t>(i)]); };
    if (at(begin) > at(longest)) longest = begin;
  }
  std::swap(order[0], order[static_cast<std::size_t>(longest)]);
}

std::vector<std::int64_t> epoch_order(std::span<const std::int64_t> lengths, std::int64_t epoch,
                                      const SamplerOptions& options) {
  const auto n = static_cast<std::int64_t>(lengths.size());
  if (options.sampling == Sampling::sequential) {
    std::vector<std::int64_t> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  std::vector<std::int64_t> order = random_permutation(n, {options.seed, static_cast<std::uint64_t>(epoch)});
  if (options.sampling == Sampling::group_by_length)
    group_by_length(order, lengths, std::max<std::int64_t>(options.group, 1));
  return order;
}

}  // namespace qtrain
