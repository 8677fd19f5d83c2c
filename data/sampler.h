#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace qtrain {

enum class Sampling : std::uint8_t { random, sequential, group_by_length };

struct SamplerOptions {
  Sampling sampling = Sampling::random;
  std::uint64_t seed = 42;
  std::int64_t group = 1;  ///< rows of one optimizer step on one rank, for group_by_length: batch size * accumulation
};

/// The random permutation of 0..n-1 for (seed, epoch): Fisher-Yates from the last element down, element i exchanged
/// with floor(u * (i + 1) / 2^64), where u are the first two words of philox(seed, epoch ^ salt << 32, i). It depends
/// on nothing else, so any epoch can be had without the ones before it. `salt` separates uses of one seed.
struct PermutationKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint32_t salt = 0;
};
std::vector<std::int64_t> random_permutation(std::int64_t n, const PermutationKey& key);

/// Regroups an order of rows as transformers' get_length_grouped_indices does with its permutation: cut into
/// megabatches of min(N / (4 * group), 50) (at least one) groups, each sorted by length descending, the longest row of
/// all exchanged with the very first.
void group_by_length(std::vector<std::int64_t>& order, std::span<const std::int64_t> lengths, std::int64_t group);

/// The order in which an epoch visits rows of the given lengths: a pure function of its arguments.
std::vector<std::int64_t> epoch_order(std::span<const std::int64_t> lengths, std::int64_t epoch,
                                      const SamplerOptions& options);

}  // namespace qtrain
