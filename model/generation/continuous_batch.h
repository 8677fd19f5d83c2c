#pragma once
#include <cstdint>
#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "model/generation/generator.h"

namespace qtrain {

struct BatchLimits {
  std::int64_t sequences = 16;        ///< decoded together
  std::int64_t prefill_tokens = 512;  ///< prompt tokens run at a time
  std::int64_t context = 4096;        ///< longest prompt plus answer
  std::int64_t cache_tokens = 4096;   ///< of all sequences; at least `context`

  static constexpr std::int64_t kBlock = 16;  ///< tokens of a block of the cache
  /// Blocks that hold so many tokens.
  static constexpr std::int64_t blocks(std::int64_t tokens) { return (tokens + kBlock - 1) / kBlock; }
};

/// A token of an answer. Log-probabilities are those of the model, before any filter; only where they are asked for.
struct AnswerToken {
  std::int32_t id = 0;
  double logprob = 0;
  std::vector<std::pair<std::int32_t, double>> top = {};  ///< the most likely ones, first of equal ones first
};

/// Among whom places are shared: sequences of one request have one number, and so have requests of one client.
struct Share {
  std::uint64_t request = 0, client = 0;
};

struct SequenceRequest {
  std::size_t model = 0;
  Share share = {};
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::int64_t max_new_tokens = 256;
  std::vector<std::int32_t> stop_tokens = {};
  SamplingOptions sampling = {};
  std::uint64_t number = 0;        ///< of the sequence among those of a seed: see SamplePosition
  std::int64_t top_logprobs = -1;  ///< so many beside that of each token; -1: no log-probabilities
  /// Called with each token but the end token; returning true ends the answer.
  std::function<bool(const AnswerToken& token)> on_token = {};
  std::function<void(FinishReason reason)> on_finished = {};
};

/// Sequences that join and leave a batch at each step (continuous batching: Orca, Yu et al. 2022), of one model or of
/// several that differ in their adapters only, over one paged key/value cache: blocks of tokens, and for each sequence
/// a table of its blocks (Kwon et al. 2023). Places go to the requests that have the fewest of them, among those to
/// clients that have the fewest, and then to whoever waits longest. A sequence gives its place and its blocks back, and
/// is computed again later, where another request or client that waits has at least two places less, and where blocks
/// run out: the one that joined last of the request that has the most. On a processor a sequence has the same tokens
/// alone and in any batch.
class ContinuousBatch {
 public:
  /// The models have their memory, planned with `largest`, and outlive this.
  ContinuousBatch(Ctx& ctx, std::vector<Transformer*> models, const BatchLimits& limits);

  /// What each model has to be planned for.
  static BatchSize largest(const BatchLimits& limits);
  /// Bytes of the cache for each token of it.
  static std::size_t bytes_per_token(const Transformer& model);

  /// Lets a sequence wait for its place; the prompt is shorter than the context. Returns what `cancel` calls it.
  std::uint64_t add(SequenceRequest request);
  /// Takes a sequence out; nothing of it is called any more.
  void cancel(std::uint64_t id);
  /// Runs the next token of every answer and as much of the new prompts as fits.
  void step();

  bool empty() const { return waiting_.empty() && active_.empty(); }
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  std::int64_t active() const { return static_cast<std::int64_t>(active_.size()); }
  std::int64_t free_blocks() const { return static_cast<std::int64_t>(free_.size()); }
  const BatchLimits& limits() const { return limits_; }

 private:
  /// `done` tokens of prompt and answer are in the cache.
  struct Sequence {
    std::uint64_t id = 0;
    SequenceRequest request;
    std::vector<std::int32_t> all;  ///< prompt and answer
    std::int64_t done = 0, room = 0, answered = 0;
    std::vector<std::int32_t> blocks = {};
    std::vector<std::int64_t> angles = {};  ///< of the rotary embeddings that its keys were turned by
    std::int64_t take = 0;                  ///< tokens in this step
    bool finished = false;

    std::int64_t left() const { return static_cast<std::int64_t>(all.size()) - done; }
  };
  using Sequences = std::list<Sequence>;

  void admit();
  bool fits(const Sequence& s) const;
  Sequences::iterator first_in_line();
  Sequences::iterator last_of_the_most();
  Sequences::iterator one_that_yields_to(const Sequence& s);
  std::int64_t places_of_request(const Sequence& s) const;
  std::int64_t places_of_client(const Sequence& s) const;
  void put_back(Sequences::iterator s);
  void settle_angles(Sequence& s) const;
  void plan();
  std::vector<std::int64_t> shares_of_prefill() const;
  bool reserve(Sequences::iterator s);
  void give_back(Sequence& s);
  void run(const std::vector<Sequence*>& group);
  void sample(const std::vector<Sequence*>& group, Tensor logits);
  void accept(Sequence& s, AnswerToken token);
  AnswerToken weigh(Tensor logits, const SequenceRequest& request);

  Ctx& ctx_;
  std::vector<Transformer*> models_;
  BatchLimits limits_;
  KvCache cache_;
  StagingBuffer inputs_;
  TokenSampler sampler_;
  HostCopy copy_;
  std::vector<std::int32_t> free_;  ///< blocks
  Sequences waiting_, active_;      ///< in the order of joining
  std::uint64_t next_id_ = 0;
};

}  // namespace qtrain
