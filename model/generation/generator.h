#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/generation/sampling.h"
#include "model/runner.h"

namespace qtrain {

enum class FinishReason : std::uint8_t { stop, length };
inline const char* name_of_finish(FinishReason r) {
  return r == FinishReason::stop ? "stop" : "length";
}

struct GenerationRequest {
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::int64_t max_new_tokens = 256;
};
struct GenerationResult {
  std::vector<std::int32_t> tokens;  ///< without the end token
  FinishReason finish = FinishReason::length;
};

struct GeneratorOptions {
  std::int64_t batch = 32;            ///< sequences decoded together
  std::int64_t prefill_tokens = 512;  ///< prompt tokens run at a time
  std::vector<std::int32_t> stop_tokens;
  SamplingOptions sampling;
  std::function<void()> on_finished = {};  ///< called after each answer
};

/// Decodes sequences with a key/value cache. When a sequence finishes, the next request takes its place in the batch,
/// so that a file of prompts keeps the batch full. The runner must be planned for a pass of `largest` and outlive this.
class Generator {
 public:
  /// Called after each token with the request's index and its answer so far; returning true ends that answer.
  using OnToken = std::function<bool(std::size_t request, const std::vector<std::int32_t>& tokens)>;

  Generator(Ctx& ctx, Runner& runner, GeneratorOptions options);

  /// The batch size that the runner must be planned for.
  static BatchSize largest(const GeneratorOptions& options, std::int64_t longest_sequence);
  /// Device memory in bytes that a generator and its `run` need beyond the model's plan, for requests that fill its
  /// batch.
  static std::size_t bytes(const Transformer& model, const GeneratorOptions& options, std::int64_t longest_sequence);

  /// Returns answers in the order of the requests. Throws an input error for a prompt that leaves no room below
  /// max_position_embeddings.
  std::vector<GenerationResult> run(const std::vector<GenerationRequest>& requests, const OnToken& on_token = {});

 private:
  struct Sequence;
  bool is_stop(std::int32_t token) const;
  std::int64_t settle_angles(std::vector<Sequence>& active);
  void step(std::vector<Sequence>& active, KvCache& cache, TokenSampler& sampler);
  void sample(std::vector<Sequence>& active, Tensor logits, TokenSampler& sampler);
  void accept(Sequence& s, std::int32_t token);

  Ctx& ctx_;
  Runner& runner_;
  const Transformer& model_;
  GeneratorOptions options_;
  OnToken on_token_;
  StagingBuffer inputs_;
  bool long_angles_ = false;  ///< whether the cached keys were rotated with the long factors of LongRoPE
};

/// Throws ErrorKind::input if the model has no embedding for an id.
void require_known_tokens(std::span<const std::int32_t> ids, const ModelConfig& config, const std::string& place);
/// The largest prompt plus answer length of the requests, at most max_position_embeddings.
std::int64_t longest_sequence(const std::vector<GenerationRequest>& requests, const ModelConfig& config);

}  // namespace qtrain
