#include "train/step/row_noise.h"

#include <cmath>

#include "core/rng.h"

namespace qtrain {
namespace {

std::uint64_t joined(const std::array<std::uint32_t, 4>& words) {
  return std::uint64_t{words[0]} << 32 | words[1];
}

}  // namespace

TokenNoise noise_of(const Batch& batch, const RowNoise& noise) {
  constexpr std::uint64_t kRows = stream_of("noise of rows"), kTokens = stream_of("noise of tokens");
  TokenNoise all;
  all.keys.reserve(batch.tokens.size());
  all.magnitudes.reserve(batch.tokens.size());
  auto row = static_cast<std::uint64_t>(noise.first_row);
  const auto seed = static_cast<std::uint64_t>(noise.seed), epoch = static_cast<std::uint64_t>(noise.epoch);
  for (const std::int64_t tokens : batch.row_sizes) {
    const std::uint64_t key = joined(philox(seed ^ kRows, epoch, row++));
    const double magnitude = noise.alpha / std::sqrt(static_cast<double>(tokens) * static_cast<double>(noise.width));
    for (std::int64_t t = 0; t < tokens; ++t) {
      all.keys.push_back(static_cast<std::int64_t>(joined(philox(key, kTokens, static_cast<std::uint64_t>(t)))));
      all.magnitudes.push_back(static_cast<float>(magnitude));
    }
  }
  check(all.keys.size() == batch.tokens.size(), "the rows of a batch do not have as many tokens as the batch");
  return all;
}

}  // namespace qtrain
