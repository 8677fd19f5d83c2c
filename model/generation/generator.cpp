#include "model/generation/generator.h"

#include <fmt/format.h>

#include <algorithm>

namespace qtrain {
namespace {

// Bytes of the tokens, positions, cache rows and wanted rows of one step.
std::size_t input_bytes(const GeneratorOptions& o) {
  constexpr std::int64_t kRoundingUp = 64;
  const std::int64_t tokens = o.prefill_tokens + o.batch;
  return 4 * static_cast<std::size_t>(tokens * static_cast<std::int64_t>(sizeof(std::int32_t)) + kRoundingUp);
}

}  // namespace

Generator::Generator(Ctx& ctx, Runner& runner, GeneratorOptions options)
    : ctx_(ctx),
      runner_(runner),
      model_(runner.model()),
      options_(std::move(options)),
      inputs_(ctx.device(), input_bytes(options_)) {}

// A sequence in the batch. `done` counts tokens of prompt + answer that are in the cache.
struct Generator::Sequence {
  std::size_t request;
  std::int32_t cache_row;
  std::vector<std::int32_t> all;  // prompt and answer
  std::size_t done = 0;
  std::int64_t room;         // tokens that may still be added
  std::int64_t wanted = -1;  // row of its logits in this step, -1 while the prompt is being processed
  bool finished = false;
  GenerationResult result;
};

std::int64_t longest_sequence(const std::vector<GenerationRequest>& requests, const ModelConfig& config) {
  std::int64_t longest = 1;
  for (const GenerationRequest& r : requests)
    longest = std::max(longest, static_cast<std::int64_t>(r.prompt.size()) + r.max_new_tokens);
  return std::min(longest, config.max_position_embeddings);
}

BatchSize Generator::largest(const GeneratorOptions& o, std::int64_t longest) {
  return {.tokens = o.prefill_tokens + o.batch, .positions = longest, .targets = o.batch};
}

std::size_t Generator::bytes(const Transformer& model, const GeneratorOptions& o, std::int64_t longest) {
  return input_bytes(o) + KvCache::bytes(model, o.batch, longest) +
         TokenSampler::bytes({.rows = o.batch, .tokens = longest});
}

bool Generator::is_stop(std::int32_t token) const {
  return std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), token) != options_.stop_tokens.end();
}

void Generator::accept(Sequence& s, std::int32_t token) {
  if (is_stop(token)) {
    s.result.finish = FinishReason::stop;
    s.finished = true;
    return;
  }
  s.all.push_back(token);
  s.result.tokens.push_back(token);
  if (on_token_ && on_token_(s.request, s.result.tokens)) {
    s.result.finish = FinishReason::stop;
    s.finished = true;
  } else if (--s.room <= 0) {
    s.finished = true;
  }
}

// Returns the longest sequence in the batch. LongRoPE rotates all sequences with other factors when that exceeds the
// pre-training length, and again when it no longer does: cached keys are then recomputed, as transformers does.
std::int64_t Generator::settle_angles(std::vector<Sequence>& active) {
  std::int64_t longest = 0;
  for (const Sequence& s : active) longest = std::max(longest, static_cast<std::int64_t>(s.all.size()));
  const bool is_long =
      std::ranges::any_of(model_.config().ropes, [&](const RopeConfig& rope) { return rope.is_long(longest); });
  if (is_long != long_angles_)
    for (Sequence& s : active) s.done = 0;
  long_angles_ = is_long;
  return longest;
}

// Computes the next token of every answer, and as much of the new prompts as fits.
void Generator::step(std::vector<Sequence>& active, KvCache& cache, TokenSampler& sampler) {
  std::vector<std::int32_t> tokens, positions, rows, wanted;
  std::int64_t prefill = options_.prefill_tokens;
  const std::int64_t longest = settle_angles(active);
  for (Sequence& s : active) {
    const auto left = static_cast<std::int64_t>(s.all.size() - s.done);
    const std::int64_t take = left == 1 ? 1 : std::min(left, prefill);
    if (left > 1) prefill -= take;
    for (std::int64_t i = 0; i < take; ++i, ++s.done) {
      tokens.push_back(s.all[s.done]);
      positions.push_back(static_cast<std::int32_t>(s.done));
      rows.push_back(s.cache_row);
    }
    s.wanted = s.done == s.all.size() && take > 0 ? static_cast<std::int64_t>(wanted.size()) : -1;
    if (s.wanted >= 0) wanted.push_back(static_cast<std::int32_t>(tokens.size() - 1));
  }
  const auto put = [&](const std::vector<std::int32_t>& v) { return inputs_.put(std::span<const std::int32_t>(v)); };
  const DecodeBatch batch{.tokens = put(tokens),
                          .positions = put(positions),
                          .cache_rows = put(rows),
                          .wanted = put(wanted),
                          .longest = longest};
  inputs_.send(ctx_);
  const Tensor logits = runner_.decode(ctx_, batch, cache);
  if (!wanted.empty()) sample(active, logits, sampler);
}

// Sequences with logits are in the order of their rows.
void Generator::sample(std::vector<Sequence>& active, Tensor logits, TokenSampler& sampler) {
  std::vector<TokenSampler::Draw> draws;
  for (const Sequence& s : active)
    if (s.wanted >= 0) draws.push_back({s.all, {.sequence = s.request, .index = s.result.tokens.size()}});
  const std::vector<std::int32_t> tokens = sampler.draw(ctx_, logits, draws, options_.sampling);
  for (Sequence& s : active)
    if (s.wanted >= 0) accept(s, tokens[static_cast<std::size_t>(s.wanted)]);
}

void require_known_tokens(std::span<const std::int32_t> ids, const ModelConfig& config, const std::string& place) {
  const auto unknown = std::ranges::find_if(ids, [&](std::int32_t id) { return id < 0 || id >= config.vocab_size; });
  if (unknown != ids.end())
    fail(ErrorKind::input,
         {.cause = fmt::format("token id {} is out of range: the model's vocabulary has {} entries", *unknown,
                               config.vocab_size),
          .place = place,
          .remedy = "the tokenizer does not belong to this model, or tokens were added to it without resizing "
                    "the embeddings"});
}

std::vector<GenerationResult> Generator::run(const std::vector<GenerationRequest>& requests, const OnToken& on_token) {
  for (std::size_t i = 0; i < requests.size(); ++i)
    require_known_tokens(requests[i].prompt, model_.config(), fmt::format("prompt {}", i + 1));
  const std::int64_t limit = model_.config().max_position_embeddings;
  const std::int64_t longest = longest_sequence(requests, model_.config());
  const auto batch = std::min<std::int64_t>(options_.batch, static_cast<std::int64_t>(requests.size()));
  KvCache cache(model_, std::max<std::int64_t>(batch, 1), longest);
  TokenSampler sampler(ctx_.device(), {.rows = std::max<std::int64_t>(batch, 1), .tokens = longest});
  on_token_ = on_token;
  std::vector<GenerationResult> results(requests.size());
  std::vector<std::int32_t> free_rows;
  for (std::int64_t i = batch; i-- > 0;) free_rows.push_back(static_cast<std::int32_t>(i));
  std::vector<Sequence> active;
  for (std::size_t next = 0; next < requests.size() || !active.empty();) {
    for (; next < requests.size() && !free_rows.empty(); ++next) {
      const GenerationRequest& r = requests[next];
      const auto size = static_cast<std::int64_t>(r.prompt.size());
      if (size == 0)
        fail(ErrorKind::input, {.cause = "the prompt has no tokens", .place = fmt::format("prompt {}", next + 1)});
      if (size >= limit)
        fail(ErrorKind::input,
             {.cause = fmt::format("the prompt has {} tokens, but the model's context is {}", size, limit),
              .place = fmt::format("prompt {}", next + 1),
              .remedy = "shorten it"});
      if (r.max_new_tokens < 1) continue;
      active.push_back({.request = next,
                        .cache_row = free_rows.back(),
                        .all = r.prompt,
                        .room = std::min(r.max_new_tokens, limit - size)});
      free_rows.pop_back();
    }
    if (active.empty()) break;
    step(active, cache, sampler);
    for (Sequence& s : active)
      if (s.finished) {
        free_rows.push_back(s.cache_row);
        results[s.request] = std::move(s.result);
        if (options_.on_finished) options_.on_finished();
      }
    std::erase_if(active, [](const Sequence& s) { return s.finished; });
  }
  return results;
}

}  // namespace qtrain
