#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/transfer.h"
#include "kernels/sample.h"

namespace qtrain {

/// How the next token is chosen. The order of the filters is transformers': repetition penalty, temperature, top-k,
/// top-p, min-p.
struct SamplingOptions {
  bool greedy = false;
  double temperature = 1;
  std::int64_t top_k = 0;         ///< 0: off
  double top_p = 1;               ///< 1: off
  double min_p = 0;               ///< 0: off
  double repetition_penalty = 1;  ///< 1: off; applies to tokens of prompt and answer
  std::uint64_t seed = 42;
  std::int64_t vocabulary = 0;  ///< only ids below it are sampled (the tokenizer's size); 0: all

  ops::SampleRule rule() const;
};

struct SamplePosition {
  std::uint64_t sequence = 0, index = 0;
};

/// Samples the next tokens of sequences on the device of the logits; only the tokens are copied to the host. The result
/// depends only on (seed, sequence, index) and the logits, on every device: `index` is the token's index in its answer.
class TokenSampler {
 public:
  struct Limits {
    std::int64_t rows, tokens;  ///< maximum sequences per call, and tokens of prompt and answer per sequence
  };
  TokenSampler(Device device, const Limits& limits);
  /// Bytes of device memory that a sampler with these limits takes.
  static std::size_t bytes(const Limits& limits);

  struct Draw {
    std::span<const std::int32_t> seen;  ///< tokens of prompt and answer so far
    SamplePosition at;
  };
  /// Samples one token per row of `logits` [rows, V] f32, which is overwritten.
  std::vector<std::int32_t> draw(Ctx& ctx, Tensor logits, std::span<const Draw> rows, const SamplingOptions& options);

 private:
  StagingBuffer inputs_;
  DeviceMemory tokens_;
  HostCopy copy_;
};

}  // namespace qtrain
