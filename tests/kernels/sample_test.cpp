#include <algorithm>
#include <numeric>

#include "core/rng.h"
#include "tests/kernels/sample_cases.h"

namespace qtrain::testing {
namespace {

struct Candidate {
  std::int32_t id;
  double p;
};

/// The softmax of a row after filtering, by the definition of each filter.
std::vector<Candidate> filtered(std::vector<double> logits, const std::vector<std::int32_t>& seen,
                                const ops::SampleRule& rule, std::int64_t candidates) {
  for (const std::int32_t id : seen) {
    double& l = logits[static_cast<std::size_t>(id)];
    l = static_cast<float>(l < 0 ? l * rule.repetition_penalty : l / rule.repetition_penalty);
  }
  if (candidates > 0) logits.resize(static_cast<std::size_t>(candidates));
  std::vector<Candidate> c;
  for (std::size_t i = 0; i < logits.size(); ++i) c.push_back({static_cast<std::int32_t>(i), logits[i]});
  std::stable_sort(c.begin(), c.end(), [](const Candidate& a, const Candidate& b) { return a.p > b.p; });
  if (rule.temperature <= 0) return {c.front()};
  if (rule.top_k > 0) c.resize(std::min(c.size(), static_cast<std::size_t>(rule.top_k)));
  const double highest = c.front().p;
  double sum = 0;
  for (Candidate& x : c) sum += x.p = std::exp((x.p - highest) / rule.temperature);
  std::size_t keep = 0;
  for (double reached = 0; keep < c.size() && (keep == 0 || reached < rule.top_p); ++keep) reached += c[keep].p / sum;
  c.resize(rule.top_p < 1 ? keep : c.size());
  std::erase_if(c, [&](const Candidate& x) { return x.p < rule.min_p; });
  return c;
}

std::int32_t drawn_from(const std::vector<Candidate>& c, const std::array<std::uint32_t, 4>& words) {
  double left = 0;
  for (const Candidate& x : c) left += x.p;
  left *= static_cast<double>(std::uint64_t{words[0]} << 21 ^ words[1] >> 11) * 0x1p-53;
  for (const Candidate& x : c)
    if ((left -= x.p) < 0) return x.id;
  return c.back().id;
}

TEST(Sample, DrawsByTheDefinitionOfEachFilter) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  for (const auto& [width, candidates] : {std::pair<std::int64_t, std::int64_t>{1, 0}, {7, 0}, {1000, 0}, {500, 90}}) {
    const std::int64_t rows = 60;
    const SampleRows all(rows, width);
    const std::vector<double> logits = all.logits.values();
    for (const ops::SampleRule& rule : sample_rules()) {
      const std::vector<std::int32_t> tokens = all.drawn(ctx, rule, candidates);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto at = static_cast<std::size_t>(r);
        const std::vector<double> row(logits.begin() + r * width, logits.begin() + (r + 1) * width);
        const std::vector<std::int32_t> seen(all.seen.begin() + (r > 0 ? all.ends[at - 1] : 0),
                                             all.seen.begin() + all.ends[at]);
        const auto words = philox(rule.seed, static_cast<std::uint64_t>(r / 3), static_cast<std::uint64_t>(r % 3));
        EXPECT_EQ(tokens[at], drawn_from(filtered(row, seen, rule, candidates), words))
            << width << " logits, row " << r << ", temperature " << rule.temperature << ", top_k " << rule.top_k;
      }
    }
  }
}

TEST(Sample, WeightsAreRoundedExponentials) {
  EXPECT_EQ(ops::sample_weight(0.0), std::uint64_t{1} << ops::kSampleBits);
  for (double x = 0; x > -40; x -= 0.00917)
    EXPECT_NEAR(static_cast<double>(ops::sample_weight(x)), std::exp(x) * 0x1p44, 1) << x;
}

TEST(Sample, KeysRankLogitsThenNumbers) {
  const std::vector<float> logits{3.5f, 1e-30f, 0.0f, -1e-30f, -2.0f, -HUGE_VALF};
  for (std::size_t i = 0; i + 1 < logits.size(); ++i)
    EXPECT_GT(ops::sample_key(logits[i], 900000), ops::sample_key(logits[i + 1], 0)) << i;
  EXPECT_GT(ops::sample_key(1, 4), ops::sample_key(1, 5));
  EXPECT_EQ(ops::sample_key(-0.0f, 4), ops::sample_key(0.0f, 4));
  EXPECT_EQ(ops::number_of_key(ops::sample_key(-7, 151935)), 151935);
  for (const float logit : logits) EXPECT_EQ(ops::logit_of_key(ops::sample_key(logit, 3)), logit);
}

}  // namespace
}  // namespace qtrain::testing
