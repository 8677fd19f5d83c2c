#include "model/generation/sampling.h"

#include <algorithm>

namespace qtrain {
namespace {

// Bytes of the places, the seen tokens, and the end of each row's tokens.
std::size_t staged_bytes(const TokenSampler::Limits& n) {
  constexpr std::int64_t kPlace = 2 * sizeof(std::int64_t), kToken = sizeof(std::int32_t), kParts = 3 * 64;
  return static_cast<std::size_t>(n.rows * (kPlace + kToken + n.tokens * kToken) + kParts);
}

void append_distinct(std::vector<std::int32_t>& all, std::span<const std::int32_t> tokens) {
  const auto begin = static_cast<std::ptrdiff_t>(all.size());
  all.insert(all.end(), tokens.begin(), tokens.end());
  std::sort(all.begin() + begin, all.end());
  all.erase(std::unique(all.begin() + begin, all.end()), all.end());
}

}  // namespace

ops::SampleRule SamplingOptions::rule() const {
  return {.temperature = greedy ? 0 : temperature,
          .top_k = top_k,
          .top_p = top_p,
          .min_p = min_p,
          .repetition_penalty = repetition_penalty,
          .seed = seed};
}

std::size_t TokenSampler::bytes(const Limits& limits) {
  return staged_bytes(limits) + static_cast<std::size_t>(limits.rows) * sizeof(std::int32_t);
}

TokenSampler::TokenSampler(Device device, const Limits& limits)
    : inputs_(device, staged_bytes(limits)),
      tokens_(device, static_cast<std::size_t>(limits.rows) * sizeof(std::int32_t), "sampled tokens"),
      copy_(device) {}

std::vector<std::int32_t> TokenSampler::draw(Ctx& ctx, Tensor logits, std::span<const Draw> rows,
                                             const SamplingOptions& options) {
  std::vector<std::int64_t> places;
  std::vector<std::int32_t> seen, ends;
  for (const Draw& row : rows) {
    places.push_back(static_cast<std::int64_t>(row.at.sequence));
    places.push_back(static_cast<std::int64_t>(row.at.index));
    if (options.repetition_penalty != 1) append_distinct(seen, row.seen);
    ends.push_back(static_cast<std::int32_t>(seen.size()));
  }
  const Tensor tokens{tokens_.data(), DType::i32, {static_cast<std::int64_t>(rows.size())}, ctx.device()};
  const ops::Sample sample{.tokens = tokens,
                           .logits = logits,
                           .place = inputs_.put(std::span<const std::int64_t>(places)),
                           .seen = inputs_.put(std::span<const std::int32_t>(seen)),
                           .ends = inputs_.put(std::span<const std::int32_t>(ends)),
                           .rule = options.rule(),
                           .candidates = std::min(options.vocabulary, logits.shape[1])};
  inputs_.send(ctx);
  ops::sample(ctx, sample);
  const std::span<std::int32_t> chosen = copy_.of(ctx, tokens).span<std::int32_t>();
  return {chosen.begin(), chosen.end()};
}

}  // namespace qtrain
