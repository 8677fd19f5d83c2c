#include "train/ranks/gradient_exchange.h"

#include <algorithm>
#include <optional>

#include "core/timeline.h"
#include "model/transformer.h"

namespace qtrain {
namespace {

// Clears the gradients of one unit, or all.
void clear_gradients(Ctx& ctx, const GradientBucket& bucket, std::optional<int> unit = {}) {
  for (const GradientBucket::Part& p : bucket.parts)
    if (!unit || p.unit == unit) ctx.stream().fill(p.gradient.data, 0, p.gradient.bytes());
}

}  // namespace

bool exchanges_beside(const Transformer& model) {
  const Sharding& s = model.options().sharding;
  const bool exchanges = s.ranks > 1 || s.divides_trained();
  const bool takes_turns = model.device().kind == DeviceKind::cuda && model.options().context.is_shared();
  return exchanges && s.buffers > 1 && !takes_turns;
}

GradientExchange::GradientExchange(ShardRanks& ranks, const ReductionOptions& options, Stores stores)
    : ranks_(ranks),
      beside_(options.beside),
      sums_(options, {.rank = ranks.all().rank(), .ranks = ranks.all().size()}, stores),
      queue_(stores.front()->values().device(), options.beside, [&ranks] { ranks.disconnect(); }),
      weights_(ranks, queue_, stores) {
  sums_.allocate();
  for (const GradientBucket& bucket : sums_.buckets())
    exchanged_.resize(std::max(exchanged_.size(), slot_of(bucket) + 1));
}

std::size_t GradientExchange::bytes(int ranks, const ReductionOptions& options, Stores stores) {
  const int rank = stores.front()->sharding().rank;
  return GradientSums(options, {.rank = rank, .ranks = ranks}, stores).bytes() +
         ExchangeQueue::bytes(stores.front()->values().device(), options.beside);
}

std::size_t GradientExchange::slot_of(const GradientBucket& bucket) const {
  const int unit = bucket.last_unit();
  return static_cast<std::size_t>(sums_.sharding().divides_gradients() ? buffer_of(unit, sums_.sharding().buffers)
                                                                       : unit);
}

bool GradientExchange::acts_on(const Entry& entry) const {
  if (sums_.sharding().divides_weights()) return true;
  const auto holds_it = [&](const GradientBucket& b) { return b.holds(entry.unit); };
  return during_passes() && each_micro_batch() && entry.gradients == Gradients::yes &&
         std::ranges::any_of(sums_.buckets(), holds_it);
}

bool GradientExchange::acts_on_gradients(int unit) const {
  const auto ends_with_it = [&](const GradientBucket& b) { return b.last_unit() == unit; };
  return exchanges_gradients() && std::ranges::any_of(sums_.buckets(), ends_with_it);
}

void GradientExchange::enter(Ctx& ctx, const Entry& entry) {
  weights_.enter(ctx, entry);
  if (!during_passes() || !each_micro_batch() || entry.gradients == Gradients::no) return;
  for (const GradientBucket& bucket : sums_.buckets()) {
    if (!bucket.holds(entry.unit)) continue;
    {
      const timeline::Span span("wait for gradients");
      exchanged_[slot_of(bucket)].wait();
    }
    clear_gradients(ctx, bucket, entry.unit);
  }
}

void GradientExchange::finish_gradients(Ctx& ctx, int unit) {
  if (!exchanges_gradients()) return;
  for (const GradientBucket& bucket : sums_.buckets())
    if (bucket.last_unit() == unit) exchange(ctx, bucket);
}

Pending GradientExchange::share(Ctx& ctx, const GradientBucket& bucket) {
  return queue_.start(ctx, ranks_.replicas(),
                      [this, &bucket](Ctx& c, Collective& replicas) { sums_.share(c, replicas, bucket); });
}

void GradientExchange::exchange(Ctx& ctx, const GradientBucket& bucket) {
  Pending& exchanged = exchanged_[slot_of(bucket)];
  if (sums_.reduces()) {
    const auto mode = each_micro_batch() ? Sink::Mode::accumulate : Sink::Mode::store;
    exchanged =
        queue_.start(ctx, sums_.in_order() ? ranks_.all() : ranks_.group(),
                     [this, &bucket, mode](Ctx& c, Collective& ranks) { sums_.reduce(c, ranks, bucket, mode); });
  }
  if (is_last() && !sums_.shares_at_end() && ranks_.replicas().size() > 1) exchanged = share(ctx, bucket);
}

void GradientExchange::exchange_all(Ctx& ctx) {
  for (const GradientBucket& bucket : sums_.buckets()) {
    exchange(ctx, bucket);
    exchanged_[slot_of(bucket)].wait();
  }
}

void GradientExchange::end_micro_batch(Ctx& ctx) {
  if (!during_passes() && each_micro_batch()) {
    exchange_all(ctx);
    for (const GradientBucket& bucket : sums_.buckets()) clear_gradients(ctx, bucket);
  }
  --left_;
}

// Waits first for the unit outside the blocks, which is reduced last: on a stream, that includes the others.
void GradientExchange::finish_step(Ctx& ctx) {
  if (sums_.buckets().empty()) return;
  const timeline::Span span(divides() ? "wait for shards" : "wait for sums");
  if (!during_passes() && !each_micro_batch()) exchange_all(ctx);
  if (sums_.shares_at_end())
    for (const GradientBucket& bucket : sums_.buckets()) exchanged_[slot_of(bucket)] = share(ctx, bucket);
  for (const Pending& exchanged : exchanged_) exchanged.wait();
}

}  // namespace qtrain
