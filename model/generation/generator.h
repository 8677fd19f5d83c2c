#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/generation/sampling.h"
#include "model/transformer.h"

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

/// Decodes sequences with a key/value cache. A finished sequence gives its place in the batch to the next request, so a
/// file of prompts keeps the batch full. Owns the model's activation plan: use a model that was not committed yet.
class Generator {
 public:
  /// Called after each token with the request's index and its answer so far; returning true ends that answer.
  using OnToken = std::function<bool(std::size_t request, const std::vector<std::int32_t>& tokens)>;

  Generator(Ctx& ctx, Transformer& model, GeneratorOptions options);

  /// What `run` needs the model to be planned for, before Transformer::commit.
  static BatchSize largest(const GeneratorOptions& options, std::int64_t longest_sequence);
  BatchSize largest(std::int64_t longest_sequence) const { return largest(options_, longest_sequence); }
  /// What a generator and its `run` take on the device beside the model's plan, for requests that fill its batch.
  static std::size_t bytes(const ModelParts& model, const GeneratorOptions& options, std::int64_t longest_sequence);

  /// Answers in the order of the requests. A prompt that leaves no room below max_position_embeddings is an input
  /// error.
  std::vector<GenerationResult> run(const std::vector<GenerationRequest>& requests, const OnToken& on_token = {});

 private:
  struct Sequence;
  bool is_stop(std::int32_t token) const;
  std::int64_t settle_angles(std::vector<Sequence>& active);
  void step(std::vector<Sequence>& active, KvCache& cache, TokenSampler& sampler);
  void sample(std::vector<Sequence>& active, Tensor logits, TokenSampler& sampler);
  void accept(Sequence& s, std::int32_t token);

  Ctx& ctx_;
  Transformer& model_;
  GeneratorOptions options_;
  OnToken on_token_;
  StagingBuffer inputs_;
  bool long_angles_ = false;  ///< whether what is cached was turned by the long factors of LongRoPE
};

/// Fails with ErrorKind::input for an id that the model has no embedding of.
void require_known_tokens(std::span<const std::int32_t> ids, const ModelConfig& config, const std::string& place);
/// The longest prompt plus answer of the requests, at most max_position_embeddings.
std::int64_t longest_sequence(const std::vector<GenerationRequest>& requests, const ModelConfig& config);

}  // namespace qtrain
