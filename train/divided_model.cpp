#include "train/divided_model.h"

namespace qtrain {
namespace {

std::array<const ParamStore*, 2> stores_of(const Transformer& model) {
  return {&model.params().weights(), &model.params().adapter().store()};
}

void clear(Ctx& ctx, const Tensor& t) {
  ctx.stream().fill(t.data, 0, t.bytes());
}

}  // namespace

DividedModel::DividedModel(Transformer& model, Collective& ranks, ReductionOrder order)
    : model_(model), stores_(stores_of(model)), order_(order), exchange_(ranks, stores_) {
  model_.set_access(*this);
}

std::size_t DividedModel::bytes(int ranks, const Transformer& model) {
  return ShardExchange::bytes(ranks, stores_of(model));
}

void DividedModel::enter(Ctx& ctx, int unit, Gradients gradients) {
  int& entered = entered_[unit == kOuterUnit ? 0 : 1];
  const bool gathers = sharding().divides_weights() && entered != unit;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups_of(unit)) {
      if (gathers) exchange_.gather(ctx, group);
      if (sharding().divides_gradients() && gradients == Gradients::yes && group.trained()) clear(ctx, group.grads);
    }
  entered = unit;
}

void DividedModel::finish_gradients(Ctx& ctx, int unit) {
  if (!sharding().divides_gradients()) return;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups_of(unit))
      if (group.trained()) exchange_.reduce(ctx, group, Sink::Mode::accumulate);
}

void DividedModel::reduce_all(Ctx& ctx, Sink::Mode mode) {
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups()) {
      if (!group.trained()) continue;
      exchange_.reduce(ctx, group, mode);
      if (mode == Sink::Mode::accumulate) clear(ctx, group.grads);
    }
}

void DividedModel::end_micro_batch(Ctx& ctx) {
  if (order_ == ReductionOrder::micro_batches && !sharding().divides_gradients())
    reduce_all(ctx, Sink::Mode::accumulate);
}

void DividedModel::finish_step(Ctx& ctx) {
  if (order_ == ReductionOrder::ranks && !sharding().divides_gradients()) reduce_all(ctx, Sink::Mode::store);
}

void DividedModel::finish_update(Ctx& ctx) {
  values_changed();
  if (sharding().divides_weights()) return;
  for (const ParamStore* store : stores_)
    for (const ShardGroup& group : store->groups())
      if (group.trained()) exchange_.gather(ctx, group);
}

}  // namespace qtrain
