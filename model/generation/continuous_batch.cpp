#include "model/generation/continuous_batch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "model/rope_tables.h"

namespace qtrain {
namespace {

// Bytes of the tokens, positions, cache rows and wanted rows of one step, and of the block table.
std::size_t input_bytes(const BatchLimits& n) {
  constexpr std::int64_t kRoundingUp = 64;
  const std::int64_t tokens = n.prefill_tokens + n.sequences, table = n.sequences * BatchLimits::blocks(n.context);
  const auto bytes = static_cast<std::int64_t>(sizeof(std::int32_t));
  return static_cast<std::size_t>(4 * (tokens * bytes + kRoundingUp) + table * bytes + kRoundingUp);
}

bool same_rule(const SamplingOptions& a, const SamplingOptions& b) {
  const auto rule = [](const SamplingOptions& o) {
    const ops::SampleRule r = o.rule();
    return std::tuple(r.temperature, r.top_k, r.top_p, r.min_p, r.repetition_penalty, r.seed, o.vocabulary);
  };
  return rule(a) == rule(b);
}

}  // namespace

ContinuousBatch::ContinuousBatch(Ctx& ctx, std::vector<Runner*> runners, const BatchLimits& limits)
    : ctx_(ctx),
      runners_(std::move(runners)),
      limits_(limits),
      cache_(runners_.front()->model(), BatchLimits::blocks(limits.cache_tokens), BatchLimits::kBlock),
      inputs_(ctx.device(), input_bytes(limits)),
      sampler_(ctx.device(), {.rows = limits.sequences, .tokens = limits.context}),
      copy_(ctx.device()) {
  check(limits.cache_tokens >= limits.context, "the cache has no room for one sequence");
  for (std::int64_t block = cache_.rows(); block-- > 0;) free_.push_back(static_cast<std::int32_t>(block));
}

BatchSize ContinuousBatch::largest(const BatchLimits& limits) {
  return {.tokens = limits.prefill_tokens + limits.sequences, .positions = limits.context, .targets = limits.sequences};
}

std::size_t ContinuousBatch::bytes_per_token(const Transformer& model) {
  std::int64_t elements = 0;
  for (const Layer& layer : model.layers()) elements += 2 * layer.key_value.heads * layer.key_value.head_dim;
  return static_cast<std::size_t>(elements) * size_of(model.options().activation_dtype);
}

std::uint64_t ContinuousBatch::add(SequenceRequest request) {
  const auto size = static_cast<std::int64_t>(request.prompt.size());
  check(size > 0 && size < limits_.context && request.max_new_tokens > 0,
        "a prompt must have tokens and leave room for an answer");
  Sequence& s = waiting_.emplace_back();
  s.id = next_id_++;
  s.all = request.prompt;
  s.room = std::min(request.max_new_tokens, limits_.context - size);
  s.request = std::move(request);
  return s.id;
}

void ContinuousBatch::cancel(std::uint64_t id) {
  for (Sequences* list : {&waiting_, &active_})
    for (auto s = list->begin(); s != list->end(); ++s) {
      if (s->id != id) continue;
      give_back(*s);
      list->erase(s);
      return;
    }
}

void ContinuousBatch::give_back(Sequence& s) {
  free_.insert(free_.end(), s.blocks.rbegin(), s.blocks.rend());
  s.blocks.clear();
  s.done = 0;
}

// Rotary embeddings that depend on the length use the sequence's own length, whatever it runs with. When LongRoPE
// switches factors beyond the pre-training length, the cached keys have the wrong angles and are recomputed.
void ContinuousBatch::settle_angles(Sequence& s) const {
  const auto length = static_cast<std::int64_t>(s.all.size());
  std::vector<std::int64_t> angles;
  bool differ = false;
  for (const RopeConfig& rope : runners_[s.request.model]->model().config().ropes) {
    angles.push_back(rope_state(rope, length));
    differ |=
        !s.angles.empty() && rope.type == RopeConfig::Type::longrope && angles.back() != s.angles[angles.size() - 1];
  }
  if (differ) s.done = 0;
  s.angles = std::move(angles);
}

// Reserves blocks for the tokens that the sequence is about to process. If there are too few, other sequences are
// preempted, or this one; then it returns false.
bool ContinuousBatch::reserve(Sequences::iterator s) {
  const auto needed = static_cast<std::size_t>(BatchLimits::blocks(s->done + s->take));
  while (s->blocks.size() < needed) {
    if (!free_.empty()) {
      s->blocks.push_back(free_.back());
      free_.pop_back();
      continue;
    }
    const auto yields = last_of_the_most();
    const bool itself = yields == s;
    put_back(yields);
    if (itself) return false;
  }
  return true;
}

// Plans the tokens of each sequence: one for an answer, and as many prompt tokens as fit.
void ContinuousBatch::plan() {
  for (Sequence& s : active_) settle_angles(s);
  std::vector<std::uint64_t> ids;
  for (const Sequence& s : active_) ids.push_back(s.id);
  const std::vector<std::int64_t> shares = shares_of_prefill();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto s = std::ranges::find(active_, ids[i], &Sequence::id);
    if (s == active_.end()) continue;  // it was preempted
    s->take = shares[i];
    reserve(s);
  }
}

void ContinuousBatch::step() {
  admit();
  plan();
  std::map<std::pair<std::size_t, std::vector<std::int64_t>>, std::vector<Sequence*>> groups;
  for (Sequence& s : active_)
    if (s.take > 0) groups[{s.request.model, s.angles}].push_back(&s);
  for (const auto& [key, group] : groups) run(group);
  for (auto s = active_.begin(); s != active_.end();) {
    if (!s->finished) {
      ++s;
      continue;
    }
    give_back(*s);
    s = active_.erase(s);
  }
}

void ContinuousBatch::run(const std::vector<Sequence*>& group) {
  std::vector<std::int32_t> tokens, positions, rows, wanted, table;
  std::int64_t longest = 0, width = 0;
  for (const Sequence* s : group) {
    longest = std::max(longest, static_cast<std::int64_t>(s->all.size()));
    width = std::max(width, static_cast<std::int64_t>(s->blocks.size()));
  }
  std::vector<Sequence*> answering;
  for (std::size_t i = 0; i < group.size(); ++i) {
    Sequence& s = *group[i];
    for (std::int64_t t = 0; t < s.take; ++t, ++s.done) {
      tokens.push_back(s.all[static_cast<std::size_t>(s.done)]);
      positions.push_back(static_cast<std::int32_t>(s.done));
      rows.push_back(static_cast<std::int32_t>(i));
    }
    table.insert(table.end(), s.blocks.begin(), s.blocks.end());
    table.resize((i + 1) * static_cast<std::size_t>(width));
    if (s.left() > 0) continue;
    wanted.push_back(static_cast<std::int32_t>(tokens.size() - 1));
    answering.push_back(&s);
  }
  const auto put = [&](const std::vector<std::int32_t>& v) { return inputs_.put(std::span<const std::int32_t>(v)); };
  const DecodeBatch batch{.tokens = put(tokens),
                          .positions = put(positions),
                          .cache_rows = put(rows),
                          .wanted = put(wanted),
                          .blocks = put(table).reshaped({static_cast<std::int64_t>(group.size()), width}),
                          .longest = longest};
  inputs_.send(ctx_);
  const Tensor logits = runners_[group.front()->request.model]->decode(ctx_, batch, cache_);
  if (!answering.empty()) sample(answering, logits);
}

// The log-probability of the highest-ranked allowed token in one row of logits [1, V]. `logprob` is the logarithm of
// the softmax denominator.
AnswerToken ContinuousBatch::weigh(Tensor logits, const SequenceRequest& request) {
  const std::span<const float> row = copy_.of(ctx_, logits).span<float>();
  const double highest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - highest);
  AnswerToken out{.logprob = highest + std::log(sum)};
  const auto vocabulary = static_cast<std::size_t>(request.sampling.vocabulary);
  std::vector<std::int32_t> ids(vocabulary > 0 ? std::min(vocabulary, row.size()) : row.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min(request.top_logprobs, static_cast<std::int64_t>(ids.size()));
  const auto logit = [&](std::int32_t id) { return row[static_cast<std::size_t>(id)]; };
  std::partial_sort(ids.begin(), end, ids.end(),
                    [&](std::int32_t a, std::int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  for (auto id = ids.begin(); id != end; ++id) out.top.emplace_back(*id, logit(*id) - out.logprob);
  return out;
}

// Rows of logits are in the order of the sequences; consecutive rows with the same sampling options are drawn together.
void ContinuousBatch::sample(const std::vector<Sequence*>& group, Tensor logits) {
  std::vector<AnswerToken> drawn(group.size());
  std::vector<std::vector<float>> rows(group.size());
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i]->request.top_logprobs < 0) continue;
    const Tensor row = logits.slice(static_cast<std::int64_t>(i), 1);
    drawn[i] = weigh(row, group[i]->request);
    const std::span<const float> values = copy_.of(ctx_, row).span<float>();
    rows[i].assign(values.begin(), values.end());  // sampling overwrites them
  }
  for (std::size_t begin = 0, end; begin < group.size(); begin = end) {
    const SamplingOptions& rule = group[begin]->request.sampling;
    std::vector<TokenSampler::Draw> draws;
    for (end = begin; end < group.size() && same_rule(rule, group[end]->request.sampling); ++end)
      draws.push_back(
          {group[end]->all,
           {.sequence = group[end]->request.number, .index = static_cast<std::uint64_t>(group[end]->answered)}});
    const Tensor part = logits.slice(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin));
    const std::vector<std::int32_t> tokens = sampler_.draw(ctx_, part, draws, rule);
    for (std::size_t i = begin; i < end; ++i) drawn[i].id = tokens[i - begin];
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!rows[i].empty()) drawn[i].logprob = rows[i][static_cast<std::size_t>(drawn[i].id)] - drawn[i].logprob;
    accept(*group[i], std::move(drawn[i]));
  }
}

void ContinuousBatch::accept(Sequence& s, AnswerToken token) {
  const auto finish = [&](FinishReason reason) {
    s.finished = true;
    if (s.request.on_finished) s.request.on_finished(reason);
  };
  const std::vector<std::int32_t>& ends = s.request.stop_tokens;
  if (std::find(ends.begin(), ends.end(), token.id) != ends.end()) return finish(FinishReason::stop);
  s.all.push_back(token.id);
  ++s.answered;
  if (s.request.on_token && s.request.on_token(token)) return finish(FinishReason::stop);
  if (--s.room <= 0) finish(FinishReason::length);
}

}  // namespace qtrain
