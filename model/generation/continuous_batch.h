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

  static constexpr std::int64_t kBlock = 16;  ///< tokens per block of the cache
  /// Number of blocks that hold this many tokens.
  static constexpr std::int64_t blocks(std::int64_t tokens) { return (tokens + kBlock - 1) / kBlock; }
};

/// A token of an answer. Log-probabilities are the model's, before any filter; they are only set if requested.
struct AnswerToken {
  std::int32_t id = 0;
  double logprob = 0;
  std::vector<std::pair<std::int32_t, double>> top = {};  ///< the most likely tokens; the lower id comes first on a tie
};

/// Who shares places: sequences of one request have the same request number, requests of one client the same client
/// number.
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
  std::uint64_t number = 0;        ///< index of the sequence among those with the same seed: see SamplePosition
  std::int64_t top_logprobs = -1;  ///< number of alternatives returned with each token's log-probability; -1: no log-
                                   ///< probabilities
  /// Called with each token except the end token; returning true ends the answer.
  std::function<bool(const AnswerToken& token)> on_token = {};
  std::function<void(FinishReason reason)> on_finished = {};
};

/// Continuous batching (Orca, Yu et al. 2022): sequences join and leave the batch at each step. They may use one model
/// or several that differ only in their adapters, and share one paged key/value cache of blocks of tokens, with a table
/// of blocks per sequence (Kwon et al. 2023). Free places go to the requests with the fewest places, among those to the
/// clients with the fewest, then to the sequence that has waited longest. A sequence is preempted, and recomputed
/// later, if a waiting request or client has at least two places fewer; if blocks run out, the most recent sequence of
/// the request with the most places is preempted. On a CPU a sequence gets the same tokens alone and in any batch.
class ContinuousBatch {
 public:
  /// The runners, in the order of SequenceRequest::model, must be planned for a pass of `largest` and outlive this.
  ContinuousBatch(Ctx& ctx, std::vector<Runner*> runners, const BatchLimits& limits);

  /// The batch size that each runner must be planned for.
  static BatchSize largest(const BatchLimits& limits);
  /// Cache bytes per token.
  static std::size_t bytes_per_token(const Transformer& model);

  /// Queues a sequence; its prompt must be shorter than the context. Returns its id for `cancel`.
  std::uint64_t add(SequenceRequest request);
  /// Removes a sequence; its callbacks are not called again.
  void cancel(std::uint64_t id);
  /// Computes the next token of every active answer, and as much of the new prompts as fits.
  void step();

  bool empty() const { return waiting_.empty() && active_.empty(); }
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  std::int64_t active() const { return static_cast<std::int64_t>(active_.size()); }
  std::int64_t free_blocks() const { return static_cast<std::int64_t>(free_.size()); }
  const BatchLimits& limits() const { return limits_; }

 private:
  /// `done` counts tokens of prompt and answer that are in the cache.
  struct Sequence {
    std::uint64_t id = 0;
    SequenceRequest request;
    std::vector<std::int32_t> all;  ///< prompt and answer
    std::int64_t done = 0, room = 0, answered = 0;
    std::vector<std::int32_t> blocks = {};
    std::vector<std::int64_t> angles = {};  ///< rope_state of each rotary embedding that its keys were rotated with
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
  std::vector<Runner*> runners_;
  BatchLimits limits_;
  KvCache cache_;
  StagingBuffer inputs_;
  TokenSampler sampler_;
  HostCopy copy_;
  std::vector<std::int32_t> free_;  ///< blocks
  Sequences waiting_, active_;      ///< in joining order
  std::uint64_t next_id_ = 0;
};

}  // namespace qtrain
