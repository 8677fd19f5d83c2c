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

/// Random permutation of 0..n-1 for (seed, epoch): Fisher-Yates from the last element down, swapping element i with
/// floor(u * (i + 1) / 2^64), where u is the first two words of philox(seed, epoch ^ salt << 32, i). Any epoch can be
/// computed without the previous ones. `salt` separates different uses of one seed.
struct PermutationKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint32_t salt = 0;
};
std::vector<std::int64_t> random_permutation(std::int64_t n, const PermutationKey& key);

/// Regroups an order of rows like transformers' get_length_grouped_indices: splits it into megabatches of min(N / (4 *
/// group), 50) (at least one) groups, sorts each by descending length, and swaps the longest row of all to the front.
void group_by_length(std::vector<std::int64_t>& order, std::span<const std::int64_t> lengths, std::int64_t group);

/// The order in which an epoch visits rows of the given lengths; a pure function.
std::vector<std::int64_t> epoch_order(std::span<const std::int64_t> lengths, std::int64_t epoch,
                                      const SamplerOptions& options);

}  // namespace qtrain
