#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace qtrain {

/// How the next token is chosen. The order of the filters is transformers': repetition penalty, temperature, top-k,
/// top-p, min-p.
struct SamplingOptions {
  bool greedy = false;
  double temperature = 1;
  std::int64_t top_k = 0;         ///< 0: off
  double top_p = 1;               ///< 1: off
  double min_p = 0;               ///< 0: off
  double repetition_penalty = 1;  ///< 1: off; counts prompt and answer
  std::uint64_t seed = 42;
};

/// Chooses one of `logits` [V], which it may change. `seen`: tokens of prompt and answer so far. The same for the same
/// (seed, sequence, index): `index` is the number of the token in its answer.
struct SamplePosition {
  std::uint64_t sequence = 0, index = 0;
};
std::int32_t sample_token(std::span<float> logits, std::span<const std::int32_t> seen, const SamplingOptions& options,
                          SamplePosition position);

}  // namespace qtrain
