#include "model/generation/sampling.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;

/// ln of 0.1, 0.4, 0.05, 0.3, 0.15.
const std::vector<float> kLogits{std::log(0.1f), std::log(0.4f), std::log(0.05f), std::log(0.3f), std::log(0.15f)};
constexpr int kDraws = 20000;

std::int32_t draw_changing(std::vector<float>& logits, SamplingOptions o, SamplePosition at,
                           const std::vector<std::int32_t>& seen) {
  static Ctx ctx({}, MatmulPrecision::storage, 1);
  static TokenSampler sampler({}, {.rows = 1, .tokens = 16});
  const TokenSampler::Draw row{seen, at};
  const Shape shape{1, static_cast<std::int64_t>(logits.size())};
  const Tensor tensor{reinterpret_cast<std::byte*>(logits.data()), DType::f32, shape};
  return sampler.draw(ctx, tensor, std::span(&row, 1), o).front();
}
std::int32_t draw(SamplingOptions o, SamplePosition at, std::vector<std::int32_t> seen = {},
                  std::vector<float> logits = kLogits) {
  return draw_changing(logits, o, at, seen);
}

std::vector<double> frequencies(const SamplingOptions& o, const std::vector<std::int32_t>& seen = {}) {
  std::vector<double> f(kLogits.size());
  for (std::uint64_t i = 0; i < kDraws; ++i) f[static_cast<std::size_t>(draw(o, {i % 7, i / 7}, seen))] += 1.0 / kDraws;
  return f;
}

/// Four standard deviations of a frequency of 1/2 over the draws; a probability of 0 is never drawn.
void expect_distribution(const std::vector<double>& f, const std::vector<double>& p) {
  ASSERT_EQ(f.size(), p.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    EXPECT_NEAR(f[i], p[i], p[i] == 0 ? 0 : 4 * 0.5 / std::sqrt(kDraws)) << "token " << i;
}

TEST(Sampling, DrawsFromTheSoftmax) {
  expect_distribution(frequencies({}), {0.1, 0.4, 0.05, 0.3, 0.15});
}

TEST(Sampling, TemperatureRaisesProbabilitiesToAPower) {
  // p^2 over its sum 0.285; sqrt(p) over its sum.
  expect_distribution(frequencies({.temperature = 0.5}),
                      {0.01 / 0.285, 0.16 / 0.285, 0.0025 / 0.285, 0.09 / 0.285, 0.0225 / 0.285});
  expect_distribution(frequencies({.temperature = 2}), {0.1501, 0.3001, 0.1061, 0.2599, 0.1838});
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  expect_distribution(frequencies({.top_k = 2}), {0, 4.0 / 7, 0, 3.0 / 7, 0});
  expect_distribution(frequencies({.top_k = 1}), {0, 1, 0, 0, 0});
  expect_distribution(frequencies({.top_k = 99}), {0.1, 0.4, 0.05, 0.3, 0.15});
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  expect_distribution(frequencies({.top_p = 0.65}), {0, 4.0 / 7, 0, 3.0 / 7, 0});
  expect_distribution(frequencies({.top_p = 0.75}), {0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85});
  expect_distribution(frequencies({.top_p = 0.01}), {0, 1, 0, 0, 0});
  expect_distribution(frequencies({.top_p = 0}), {0, 1, 0, 0, 0});
}

TEST(Sampling, MinPIsRelativeToTheLikeliest) {
  expect_distribution(frequencies({.min_p = 0.3}), {0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85});
  expect_distribution(frequencies({.min_p = 1}), {0, 1, 0, 0, 0});
}

TEST(Sampling, FiltersFollowEachOtherAsInTransformers) {
  // top_k 3 leaves 0.4, 0.3, 0.15, which become 0.471, 0.353, 0.176; these reach 0.8 with two.
  expect_distribution(frequencies({.top_k = 3, .top_p = 0.8}), {0, 4.0 / 7, 0, 3.0 / 7, 0});
  // Temperature comes first: at 0.5 the two likeliest have 0.877.
  expect_distribution(frequencies({.temperature = 0.5, .top_p = 0.85}), {0, 0.64, 0, 0.36, 0});
}

TEST(Sampling, RepetitionPenaltyCountsEachTokenOnce) {
  // Negative logits are multiplied, positive ones divided.
  std::vector<float> logits{2.0f, 1.9f, -1.0f};
  const std::vector<std::int32_t> seen{0, 2, 0, 0};
  EXPECT_EQ(draw_changing(logits, {.greedy = true, .repetition_penalty = 1.25}, {}, seen), 1);
  EXPECT_THAT(logits, ElementsAre(1.6f, 1.9f, -1.25f));
}

TEST(Sampling, GreedyTakesTheFirstOfTheHighest) {
  EXPECT_EQ(draw({.greedy = true}, {}), 1);
  EXPECT_EQ(draw({.temperature = 0}, {}), 1);
  EXPECT_EQ(draw({.greedy = true}, {}, {}, {1, 3, 3}), 1);
}

TEST(Sampling, SameSeedSamePositionSameToken) {
  std::map<std::uint64_t, int> differing;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const SamplePosition at{.sequence = i / 20, .index = i % 20};
    EXPECT_EQ(draw({.seed = 9}, at), draw({.seed = 9}, at));
    differing[0] += draw({.seed = 9}, at) != draw({.seed = 10}, at);
    differing[1] += draw({.seed = 9}, at) != draw({.seed = 9}, {.sequence = at.sequence + 50, .index = at.index});
    differing[2] += draw({.seed = 9}, at) != draw({.seed = 9}, {.sequence = at.sequence, .index = at.index + 50});
  }
  // Two independent draws agree with probability 0.285.
  for (const auto& [what, n] : differing) EXPECT_GT(n, 100) << what;
}

}  // namespace
}  // namespace qtrain::testing
