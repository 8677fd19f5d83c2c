#include "train/ranks/divided_model.h"

#include <algorithm>

#include "core/timeline.h"

namespace qtrain {
namespace {

std::array<const ParamStore*, 2> stores_of(const Transformer& model) {
  return {&model.params().weights(), &model.params().adapter().store()};
}

ShardExchange::Options exchange_options(const Transformer& model, const ReductionOptions& reduction) {
  return {.device = model.device(),
          .order = reduction.order,
          .wire = reduction.wire,
          .own_stream = exchanges_beside(model) && model.device().kind == DeviceKind::cuda};
}

void clear(Ctx& ctx, const Tensor& t) {
  ctx.stream().fill(t.data, 0, t.bytes());
}

}  // namespace

DividedModel::DividedModel(Runner& runner, ShardRanks& ranks, const ReductionOptions& reduction)
    : model_(runner.model()),
      stores_(stores_of(model_)),
      order_(reduction.order),
      ranks_(ranks),
      exchange_(ranks_, exchange_options(model_, reduction), stores_),
      buffers_(static_cast<std::size_t>(1 + sharding().buffers)),
      beside_(exchanges_beside(model_)),
      added_(static_cast<std::size_t>(1 + model_.config().layers)) {
  runner.set_access(*this);
}

std::size_t DividedModel::bytes(const ReductionOptions& reduction, const Transformer& model) {
  return ShardExchange::bytes(exchange_options(model, reduction), stores_of(model));
}

DividedModel::Buffer& DividedModel::buffer_for(int unit) {
  return buffers_[static_cast<std::size_t>(buffer_of(unit, sharding().buffers))];
}

bool DividedModel::trains(int unit) const {
  return std::ranges::any_of(
      stores_, [&](const ParamStore* s) { return std::ranges::any_of(s->groups_of(unit), &ShardGroup::trained); });
}

// Starts gathering the values of a unit, unless its buffer already has them.
void DividedModel::fetch(Ctx& ctx, int unit) {
  Buffer& buffer = buffer_for(unit);
  if (buffer.unit == unit) return;
  buffer.unit = unit;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups_of(unit)) buffer.gathered = exchange_.gather(ctx, group);
}

void DividedModel::enter(Ctx& ctx, const Entry& entry) {
  Buffer& buffer = buffer_for(entry.unit);
  if (sharding().divides_weights()) {
    fetch(ctx, entry.unit);
    if (entry.next != kNoUnit && &buffer_for(entry.next) != &buffer) fetch(ctx, entry.next);
    const timeline::Span span("wait for weights");
    buffer.gathered.wait();
  }
  if (entry.gradients == Gradients::no || !clears_gradients()) return;
  {
    const timeline::Span span("wait for gradients");
    (sharding().divides_gradients() ? buffer.reduced : added_[static_cast<std::size_t>(entry.unit)]).wait();
  }
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups_of(entry.unit))
      if (group.trained()) clear(ctx, group.grads);
}

Pending DividedModel::add(Ctx& ctx, const ShardGroup& group, Sink::Mode mode) {
  const Pending added = exchange_.reduce(ctx, group, mode);
  return left_ > 1 || ranks_.replicas().size() == 1 ? added : exchange_.settle(ctx, group);
}

void DividedModel::finish_gradients(Ctx& ctx, int unit) {
  const bool divides = sharding().divides_gradients();
  if (!divides && !adds_whole()) return;
  const auto mode = divides || in_order() ? Sink::Mode::accumulate : Sink::Mode::store;
  Pending& added = divides ? buffer_for(unit).reduced : added_[static_cast<std::size_t>(unit)];
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups_of(unit))
      if (group.trained()) added = add(ctx, group, mode);
}

void DividedModel::values_changed() {
  for (Buffer& buffer : buffers_) {
    buffer.gathered.wait();
    buffer.unit = kNoUnit;
  }
}

void DividedModel::reduce_all(Ctx& ctx, Sink::Mode mode) {
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups()) {
      if (!group.trained()) continue;
      add(ctx, group, mode).wait();
      if (mode == Sink::Mode::accumulate) clear(ctx, group.grads);
    }
}

void DividedModel::end_micro_batch(Ctx& ctx) {
  if (in_order() && !sharding().divides_gradients() && !beside_) reduce_all(ctx, Sink::Mode::accumulate);
  --left_;
}

void DividedModel::finish_step(Ctx& ctx) {
  for (const Buffer& buffer : buffers_) buffer.reduced.wait();
  for (const Pending& added : added_) added.wait();
  if (!in_order() && !sharding().divides_gradients() && !beside_) reduce_all(ctx, Sink::Mode::store);
}

void DividedModel::replicate(Ctx& ctx) {
  Pending all;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups())
      if (group.trained() && group.cut == Cut::never) all = exchange_.replicate(ctx, group);
  all.wait();
}

void DividedModel::finish_update(Ctx& ctx) {
  values_changed();
  if (ranks_.replicas().size() > 1 && !sharding().replicas_agree) replicate(ctx);
  if (sharding().divides_weights()) return;
  Pending all;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups())
      if (group.trained()) all = exchange_.gather(ctx, group);
  all.wait();
}

}  // namespace qtrain
