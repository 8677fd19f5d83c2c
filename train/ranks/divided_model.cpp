#include "train/ranks/divided_model.h"

#include <utility>

#include "core/timeline.h"

namespace qtrain {
namespace {

std::array<const ParamStore*, 2> stores_of(const Transformer& model) {
  return {&model.params().weights(), &model.params().adapter().store()};
}

ShardExchange::Options exchange_options(const Transformer& model, const ReductionOptions& reduction) {
  return {.device = model.device(), .order = reduction.order, .wire = reduction.wire, .beside = reduction.beside};
}

}  // namespace

DividedModel::DividedModel(Runner& runner, ShardRanks& ranks, const ReductionOptions& reduction)
    : GradientExchange(reduction, runner.model().options().sharding),
      model_(runner.model()),
      stores_(stores_of(model_)),
      ranks_(ranks),
      exchange_(ranks_, exchange_options(model_, reduction), stores_),
      buffers_(static_cast<std::size_t>(1 + sharding().buffers)) {
  std::vector<GradientBucket> buckets;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups())
      if (group.trained()) buckets.push_back(exchange_.bucket_of(group));
  set_buckets(std::move(buckets));
  runner.set_access(*this);
}

std::size_t DividedModel::bytes(const ReductionOptions& reduction, const Transformer& model) {
  return ShardExchange::bytes(exchange_options(model, reduction), stores_of(model));
}

DividedModel::Buffer& DividedModel::buffer_for(int unit) {
  return buffers_[static_cast<std::size_t>(buffer_of(unit, sharding().buffers))];
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
  GradientExchange::enter(ctx, entry);
}

Pending DividedModel::add(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) {
  const Pending added = exchange_.reduce(ctx, bucket, mode);
  return !is_last() || ranks_.replicas().size() == 1 ? added : exchange_.settle(ctx, *bucket.group);
}

void DividedModel::values_changed() {
  for (Buffer& buffer : buffers_) {
    buffer.gathered.wait();
    buffer.unit = kNoUnit;
  }
}

void DividedModel::replicate(Ctx& ctx) {
  Pending all;
  for (const GradientBucket& bucket : buckets())
    if (bucket.group->cut == Cut::never) all = exchange_.replicate(ctx, *bucket.group);
  all.wait();
}

void DividedModel::finish_update(Ctx& ctx) {
  values_changed();
  if (ranks_.replicas().size() > 1 && !sharding().replicas_agree) replicate(ctx);
  if (sharding().divides_weights()) return;
  Pending all;
  for (const GradientBucket& bucket : buckets()) all = exchange_.gather(ctx, *bucket.group);
  all.wait();
}

}  // namespace qtrain
