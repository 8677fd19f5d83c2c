#include "train/ranks/gradient_exchange.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/timeline.h"
#include "model/transformer.h"
#include "train/ranks/divided_model.h"
#include "train/ranks/gradient_reducer.h"

namespace qtrain {
namespace {

void clear_gradients(Ctx& ctx, const GradientParts& parts) {
  ctx.stream().fill(parts.gradient.data, 0, parts.gradient.bytes());
}

std::array<const ParamStore*, 2> stores_of(const Transformer& model) {
  return {&model.params().weights(), &model.params().adapter().store()};
}

}  // namespace

bool exchanges_beside(const Transformer& model) {
  const Sharding& s = model.options().sharding;
  const bool exchanges = s.ranks > 1 || s.divides_trained();
  const bool takes_turns = model.device().kind == DeviceKind::cuda && model.options().context.is_shared();
  return exchanges && s.buffers > 1 && !takes_turns;
}

GradientExchange::GradientExchange(const ReductionOptions& options, const Sharding& sharding)
    : options_(options), after_each_pass_(sharding.divides_gradients()), buffers_(sharding.buffers) {}

void GradientExchange::set_buckets(std::vector<GradientBucket> buckets) {
  buckets_ = std::move(buckets);
  std::size_t slots = 0;
  for (const GradientBucket& bucket : buckets_) slots = std::max(slots, slot_of(bucket.units.back()) + 1);
  added_.resize(slots);
}

std::size_t GradientExchange::slot_of(int unit) const {
  return static_cast<std::size_t>(after_each_pass_ ? buffer_of(unit, buffers_) : unit);
}

Pending& GradientExchange::added(const GradientBucket& bucket) {
  return added_[slot_of(bucket.units.back())];
}

bool GradientExchange::acts_on(const Entry& entry) const {
  const auto holds_it = [&](const GradientBucket& b) { return b.holds(entry.unit); };
  return clears() && entry.gradients == Gradients::yes && std::ranges::any_of(buckets_, holds_it);
}

bool GradientExchange::acts_on_gradients(int unit) const {
  const auto ends_with_it = [&](const GradientBucket& b) { return b.units.back() == unit; };
  return exchanges_gradients() && std::ranges::any_of(buckets_, ends_with_it);
}

void GradientExchange::enter(Ctx& ctx, const Entry& entry) {
  if (!acts_on(entry)) return;
  for (const GradientBucket& bucket : buckets_) {
    if (!bucket.holds(entry.unit)) continue;
    {
      const timeline::Span span("wait for gradients");
      added(bucket).wait();
    }
    for (const GradientParts& parts : bucket.parts)
      if (parts.unit == entry.unit) clear_gradients(ctx, parts);
  }
}

void GradientExchange::finish_gradients(Ctx& ctx, int unit) {
  if (!exchanges_gradients()) return;
  for (const GradientBucket& bucket : buckets_)
    if (bucket.units.back() == unit) begin_adding(ctx, bucket);
}

void GradientExchange::begin_adding(Ctx& ctx, const GradientBucket& bucket) {
  added(bucket) = add(ctx, bucket, after_each_pass_ || in_order() ? Sink::Mode::accumulate : Sink::Mode::store);
}

void GradientExchange::add_all(Ctx& ctx) {
  for (const GradientBucket& bucket : buckets_) {
    begin_adding(ctx, bucket);
    added(bucket).wait();
  }
}

void GradientExchange::end_micro_batch(Ctx& ctx) {
  if (waits_for_the_end() && in_order()) {
    add_all(ctx);
    for (const GradientBucket& bucket : buckets_)
      for (const GradientParts& parts : bucket.parts) clear_gradients(ctx, parts);
  }
  --left_;
}

// Waits first for the unit outside the blocks, which is reduced last: on a stream, that includes the others.
void GradientExchange::finish_step(Ctx& ctx) {
  if (waits_for_the_end() && !in_order()) add_all(ctx);
  for (const Pending& added : added_) added.wait();
}

std::unique_ptr<GradientExchange> make_gradient_exchange(const ExchangeParts& parts, const ReductionOptions& options) {
  Transformer& model = parts.model;
  if (!model.options().sharding.divides_trained())
    return std::make_unique<GradientReducer>(parts.ranks, options, model.trained());
  check(parts.division, "a sharded model needs the ranks that share it");
  return std::make_unique<DividedModel>(*parts.division, options, model.device(), stores_of(model));
}

std::size_t gradient_exchange_bytes(Transformer& model, int ranks, const ReductionOptions& options) {
  if (model.options().sharding.divides_trained()) return DividedModel::bytes(options, model.device(), stores_of(model));
  return GradientReducer::bytes(model.device(), ranks, options, model.trained());
}

}  // namespace qtrain
