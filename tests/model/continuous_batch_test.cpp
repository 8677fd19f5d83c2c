#include "model/generation/continuous_batch.h"

#include <gmock/gmock.h>

#include "tests/model/random_model.h"

namespace qtrain::testing {
namespace {

using Ids = std::vector<std::int32_t>;

struct Answered {
  Ids tokens;
  std::optional<FinishReason> finish;
};

/// A base model and one with an adapter on its weights.
class InBatch : public ::testing::Test {
 protected:
  void make(const BatchLimits& limits, const Json& config = Json::object(), Device device = {}) {
    limits_ = limits;
    ctx_.emplace(device, MatmulPrecision::storage, 2);
    TransformerOptions o{.config = parse_model_config(small_config(config), "c"), .base = Update::frozen};
    const std::vector<PlannedPass> passes{{Pass::decode, ContinuousBatch::largest(limits)}};
    base_ = std::make_unique<PlannedModel>(*ctx_, o, Execution{.passes = passes});
    o.lora = adapter_on({"all-linear"});
    o.adapter = Update::frozen;
    adapted_ = std::make_unique<PlannedModel>(*ctx_, o, Execution{.passes = passes, .base = &base_->runner});
    randomize(base_->weights(), 0.3);
    randomize(adapted_->adapter(), 0.4);
    batch_.emplace(*ctx_, std::vector<Runner*>{&base_->runner, &adapted_->runner}, limits);
  }
  std::uint64_t add(Answered& to, SequenceRequest request) {
    request.on_token = [&to](const AnswerToken& t) {
      to.tokens.push_back(t.id);
      return false;
    };
    request.on_finished = [&to](FinishReason reason) { to.finish = reason; };
    return batch_->add(std::move(request));
  }
  void finish() {
    for (int steps = 0; !batch_->empty(); ++steps) {
      ASSERT_LT(steps, 1000);
      batch_->step();
    }
    EXPECT_EQ(batch_->free_blocks(), BatchLimits::blocks(limits_.cache_tokens));
  }
  Ids alone(const SequenceRequest& request) {
    Answered a;
    add(a, request);
    finish();
    return a.tokens;
  }

  Ids generated(const Ids& prompt, std::int64_t most, const SamplingOptions& sampling = {.greedy = true}) {
    const GeneratorOptions options{.sampling = sampling};
    PlannedModel model(*ctx_, {.config = base_->config(), .base = Update::frozen},
                       {.passes = {{Pass::decode, Generator::largest(options, 64)}}});
    randomize(model.weights(), 0.3);
    return Generator(*ctx_, model.runner, options).run({{prompt, most}}).front().tokens;
  }

  BatchLimits limits_;
  std::optional<Ctx> ctx_;
  std::unique_ptr<PlannedModel> base_, adapted_;
  std::optional<ContinuousBatch> batch_;
};

const std::vector<Ids> kAsked{{3, 4, 5}, {7}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {28, 27}};

SequenceRequest greedy(const Ids& prompt, std::int64_t most) {
  return {.prompt = prompt, .max_new_tokens = most, .sampling = {.greedy = true}};
}

std::vector<SequenceRequest> mixed_requests() {
  std::vector<SequenceRequest> requests;
  for (std::size_t i = 0; i < 8; ++i)
    requests.push_back({.model = i % 2,
                        .prompt = kAsked[i % 4],
                        .max_new_tokens = 20 + static_cast<std::int64_t>(i),
                        .sampling = {.greedy = i < 6, .temperature = 1.5, .seed = i}});
  return requests;
}

constexpr BatchLimits kRoomy{.sequences = 4, .prefill_tokens = 8, .context = 64, .cache_tokens = 256};

TEST_F(InBatch, HasTheAnswersOfTheGenerator) {
  make(kRoomy);
  for (const Ids& prompt : kAsked) EXPECT_EQ(alone(greedy(prompt, 20)), generated(prompt, 20));
}

// With a cache large enough for all of them, and with one in which they preempt each other.
TEST_F(InBatch, AnswersAreTheSameAloneAndAmongOthers) {
  make(kRoomy);
  const std::vector<SequenceRequest> requests = mixed_requests();
  std::vector<Ids> want;
  for (const SequenceRequest& r : requests) want.push_back(alone(r));
  EXPECT_NE(want[0], alone({.model = 1, .prompt = kAsked[0], .max_new_tokens = 20, .sampling = {.greedy = true}}));
  for (const std::int64_t cache : {256, 64}) {
    make({.sequences = 4, .prefill_tokens = 8, .context = 64, .cache_tokens = cache});
    std::vector<Answered> got(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      add(got[i], requests[i]);
      batch_->step();  // they join one after another
    }
    finish();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].tokens, want[i]) << i << " with a cache of " << cache;
  }
}

TEST_F(InBatch, ARotaryEmbeddingForTheOwnLength) {
  const auto half = static_cast<std::size_t>(parse_model_config(small_config({}), "c").head_dim / 2);
  const Json config{{"max_position_embeddings", 64},
                    {"original_max_position_embeddings", 16},
                    {"rope_scaling",
                     {{"rope_type", "longrope"},
                      {"original_max_position_embeddings", 16},
                      {"short_factor", std::vector<double>(half, 1)},
                      {"long_factor", std::vector<double>(half, 30)}}}};
  make(kRoomy, config);
  std::vector<SequenceRequest> requests{greedy({3, 4, 5}, 45), greedy({7}, 12), greedy(kAsked[2], 12)};
  for (SequenceRequest& r : requests) r.sampling = {.temperature = 2};  // their tokens depend on every logit
  std::vector<Answered> got(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) add(got[i], requests[i]);
  finish();
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(got[i].tokens, generated(requests[i].prompt, requests[i].max_new_tokens, requests[i].sampling)) << i;
}

/// Sequences that occupy all places when another one arrives, and whether that is answered before they are.
struct Line {
  std::string name;
  std::vector<Share> have;
  Share comes;
  bool goes_first;
};

// With a cache large enough for all, and with one in which blocks run out before places. All get the same tokens as
// alone.
TEST_F(InBatch, PlacesGoRoundByRequestThenByClient) {
  const std::vector<Line> lines{{"all of one request", {{1, 1}, {1, 1}, {1, 1}}, {2, 1}, true},
                                {"more of one request", {{1, 1}, {2, 2}, {1, 1}}, {3, 3}, true},
                                {"one of each request", {{1, 1}, {2, 1}, {3, 1}}, {4, 1}, false},
                                {"requests of one client", {{1, 1}, {2, 1}, {3, 1}}, {4, 2}, true},
                                {"another of the same request", {{1, 1}, {1, 1}, {1, 1}}, {1, 1}, false},
                                {"one of each client", {{1, 1}, {2, 2}, {3, 3}}, {4, 4}, false}};
  for (const std::int64_t cache : {192, 64})
    for (const Line& line : lines) {
      make({.sequences = 3, .prefill_tokens = 8, .context = 64, .cache_tokens = cache});
      const Ids want = alone(greedy(kAsked[0], 40)), wanted = alone(greedy({7}, 2));
      std::vector<Answered> got(line.have.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        SequenceRequest request = greedy(kAsked[0], 40);
        request.share = line.have[i];
        add(got[i], request);
      }
      for (int i = 0; i < 8; ++i) batch_->step();
      Answered last;
      SequenceRequest request = greedy({7}, 2);
      request.share = line.comes;
      add(last, request);
      for (int i = 0; i < 4; ++i) batch_->step();
      EXPECT_TRUE(cache == 64 || last.finish.has_value() == line.goes_first) << line.name;
      finish();
      EXPECT_EQ(last.tokens, wanted) << line.name;
      for (const Answered& a : got) EXPECT_EQ(a.tokens, want) << line.name << " with a cache of " << cache;
    }
}

// A short prompt does not wait for a long prompt of another request.
TEST_F(InBatch, PromptsOfRequestsShareAStep) {
  make({.sequences = 3, .prefill_tokens = 8, .context = 64, .cache_tokens = 192});
  std::vector<Answered> longs(2);
  Answered last;
  for (Answered& a : longs) {
    SequenceRequest request = greedy(Ids(60, 3), 2);
    request.share = {1, 1};
    add(a, request);
  }
  SequenceRequest request = greedy({7, 8, 9}, 1);
  request.share = {2, 1};
  add(last, request);
  batch_->step();
  EXPECT_TRUE(last.finish);
  EXPECT_FALSE(longs[0].finish);
  finish();
}

TEST_F(InBatch, GivesBackWhatACancelledSequenceHad) {
  make({.sequences = 1, .prefill_tokens = 8, .context = 64, .cache_tokens = 64});
  Answered first, second;
  const std::uint64_t id = add(first, {.prompt = {1, 2}, .max_new_tokens = 40, .sampling = {.greedy = true}});
  add(second, {.prompt = {3}, .max_new_tokens = 2, .sampling = {.greedy = true}});
  for (int i = 0; i < 5; ++i) batch_->step();
  EXPECT_EQ(batch_->waiting(), 1);
  batch_->cancel(id);
  finish();
  EXPECT_FALSE(first.finish);
  EXPECT_EQ(second.finish, FinishReason::length);
}

TEST_F(InBatch, TellsLogProbabilities) {
  make(kRoomy);
  std::vector<AnswerToken> tokens;
  SequenceRequest request{.prompt = {3, 4, 5}, .max_new_tokens = 6, .sampling = {.greedy = true}, .top_logprobs = 3};
  request.on_token = [&](const AnswerToken& t) {
    tokens.push_back(t);
    return false;
  };
  batch_->add(request);
  finish();
  ASSERT_EQ(tokens.size(), 6u);
  for (const AnswerToken& t : tokens) {
    ASSERT_EQ(t.top.size(), 3u);
    EXPECT_EQ(t.top[0].first, t.id);
    EXPECT_EQ(t.top[0].second, t.logprob);
    EXPECT_GE(t.top[0].second, t.top[1].second);
    EXPECT_LT(t.logprob, 0);
  }
  request.top_logprobs = base_->config().vocab_size;
  request.max_new_tokens = 1;
  tokens.clear();
  batch_->add(request);
  finish();
  double sum = 0;
  for (const auto& [id, logprob] : tokens.front().top) sum += std::exp(logprob);
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST_F(InBatch, StopTokensAndTheCallerEndAnAnswer) {
  make(kRoomy);
  SequenceRequest request{.prompt = {3, 4, 5}, .max_new_tokens = 20, .sampling = {.greedy = true}};
  const Ids free = alone(request);
  request.stop_tokens = {free[4]};
  const auto first = std::find(free.begin(), free.end(), free[4]);
  Answered stopped;
  add(stopped, request);
  finish();
  EXPECT_EQ(stopped.tokens, Ids(free.begin(), first));
  EXPECT_EQ(stopped.finish, FinishReason::stop);
}

}  // namespace
}  // namespace qtrain::testing
