#include "model/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/rng.h"

namespace qtrain {
namespace {

void penalise(std::span<float> logits, std::span<const std::int32_t> seen, double penalty) {
  std::vector<std::int32_t> distinct(seen.begin(), seen.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const std::int32_t id : distinct) {
    float& l = logits[static_cast<std::size_t>(id)];
    l = static_cast<float>(l < 0 ? l * penalty : l / penalty);
  }
}

struct Candidate {
  std::int32_t id;
  double weight;  // logit first, probability then
};

std::vector<Candidate> ranked(std::span<const float> logits, std::int64_t top_k) {
  std::vector<Candidate> all(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) all[i] = {static_cast<std::int32_t>(i), logits[i]};
  const auto higher = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  const std::size_t keep = top_k > 0 ? std::min(all.size(), static_cast<std::size_t>(top_k)) : all.size();
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keep), all.end(), higher);
  all.resize(keep);
  return all;
}

void normalise(std::vector<Candidate>& c) {
  const double highest = c.front().weight;
  double total = 0;
  for (Candidate& k : c) total += k.weight = std::exp(k.weight - highest);
  for (Candidate& k : c) k.weight /= total;
}

// Keeps the most likely tokens whose probabilities together reach top_p, at least one.
void keep_nucleus(std::vector<Candidate>& c, double top_p) {
  double total = 0;
  std::size_t keep = 0;
  while (keep < c.size() && total < top_p) total += c[keep++].weight;
  c.resize(std::max<std::size_t>(keep, 1));
}

void keep_likely(std::vector<Candidate>& c, double min_p) {
  const double least = min_p * c.front().weight;
  c.erase(std::find_if(c.begin() + 1, c.end(), [&](const Candidate& k) { return k.weight < least; }), c.end());
}

}  // namespace

std::int32_t sample_token(std::span<float> logits, std::span<const std::int32_t> seen, const SamplingOptions& o,
                          SamplePosition at) {
  if (o.repetition_penalty != 1) penalise(logits, seen, o.repetition_penalty);
  if (o.greedy || o.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<Candidate> c = ranked(logits, o.top_k);
  for (Candidate& k : c) k.weight /= o.temperature;
  normalise(c);
  if (o.top_p < 1) keep_nucleus(c, o.top_p);
  if (o.min_p > 0) keep_likely(c, o.min_p);
  const auto words = philox(o.seed, at.sequence, at.index);
  const double total =
      std::accumulate(c.begin(), c.end(), 0.0, [](double s, const Candidate& k) { return s + k.weight; });
  double left = total * (static_cast<double>(std::uint64_t{words[0]} << 21 ^ words[1] >> 11) * 0x1p-53);
  for (const Candidate& k : c)
    if ((left -= k.weight) < 0) return k.id;
  return c.back().id;
}

}  // namespace qtrain
