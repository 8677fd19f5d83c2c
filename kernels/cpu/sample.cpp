#include "kernels/sample.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/rng.h"

namespace qtrain::ops {
namespace {

using Keys = std::vector<std::uint64_t>;

struct Row {
  std::span<float> logits;
  std::span<const std::int32_t> seen;
  std::uint64_t sequence, index;
};

Row row_of(const Sample& a, std::int64_t i) {
  Row row{.logits = a.logits.slice(i, 1).span<float>(), .seen = {}, .sequence = 0, .index = 0};
  const auto* place = a.place.as<std::int64_t>() + 2 * i;
  row.sequence = static_cast<std::uint64_t>(place[0]);
  row.index = static_cast<std::uint64_t>(place[1]);
  if (a.rule.repetition_penalty == 1) return row;
  const auto* ends = a.ends.as<std::int32_t>();
  const std::int32_t begin = i > 0 ? ends[i - 1] : 0;
  if (ends[i] > begin) row.seen = {a.seen.as<std::int32_t>() + begin, static_cast<std::size_t>(ends[i] - begin)};
  return row;
}

Keys keys_of(std::span<const float> logits) {
  Keys keys(logits.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = sample_key(logits[i], static_cast<std::uint32_t>(i));
  return keys;
}

/// Sorts the keys in descending order, keeping the first top_k.
void rank(Keys& keys, std::int64_t top_k) {
  if (top_k > 0 && top_k < static_cast<std::int64_t>(keys.size())) {
    std::nth_element(keys.begin(), keys.begin() + top_k, keys.end(), std::greater<>{});
    keys.resize(static_cast<std::size_t>(top_k));
  }
  std::sort(keys.begin(), keys.end(), std::greater<>{});
}

/// The first key at which the cumulative weight exceeds `point`, which is below the total.
std::uint64_t key_at(const Keys& keys, const SampleWeights<double>& weights, std::uint64_t point) {
  std::uint64_t sum = 0;
  for (const std::uint64_t key : keys)
    if ((sum += weights(key)) > point) return key;
  return keys.back();
}

std::int32_t draw(const Row& row, const Sample& a) {
  const SampleRule& rule = a.rule;
  for (const std::int32_t id : row.seen) {
    float& logit = row.logits[static_cast<std::size_t>(id)];
    logit = penalized(logit, rule.repetition_penalty);
  }
  Keys keys = keys_of(row.logits.first(static_cast<std::size_t>(a.width())));
  const std::uint64_t first = *std::max_element(keys.begin(), keys.end());
  if (rule.temperature <= 0 || !can_weigh(logit_of_key(first))) return number_of_key(first);
  rank(keys, rule.top_k);
  SampleWeights<double> weights{.highest = logit_of_key(first), .temperature = rule.temperature};
  const auto total = [&] {
    return std::accumulate(keys.begin(), keys.end(), std::uint64_t{0},
                           [&](std::uint64_t sum, std::uint64_t key) { return sum + weights(key); });
  };
  if (rule.top_p < 1) {
    const std::uint64_t enough = std::max<std::uint64_t>(share_of(rule.top_p, total()), 1);
    weights.last_key = key_at(keys, weights, enough - 1);
  }
  if (rule.min_p > 0) weights.least = share_of(rule.min_p, std::uint64_t{1} << kSampleBits);
  return number_of_key(key_at(keys, weights, sample_point(philox(rule.seed, row.sequence, row.index), total())));
}

}  // namespace

void run_cpu(Ctx& ctx, const Sample& a) {
  auto* tokens = a.tokens.as<std::int32_t>();
  ctx.pool().run(a.tokens.numel(), [&](std::int64_t i, int) { tokens[i] = draw(row_of(a, i), a); });
}

}  // namespace qtrain::ops
