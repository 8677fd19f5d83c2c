#include "train/plan/step_exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "train/shard_exchange.h"

namespace qtrain {
namespace {

// Named after the elements of one rank.
ExchangeCall gather_call(int ranks, DType dtype, std::int64_t row) {
  return {.what = Exchange::all_gather,
          .name = fmt::format("all_gather of {} {}", row, name_of(dtype)),
          .bytes = static_cast<double>(ranks * row) * static_cast<double>(size_of(dtype))};
}

// Named after those of all.
ExchangeCall reduce_call(int ranks, DType dtype, std::int64_t row) {
  const std::int64_t all = ranks * row;
  return {.what = Exchange::reduce,
          .name = fmt::format("all_to_all of {} {}", all, name_of(dtype)),
          .bytes = static_cast<double>(all) * static_cast<double>(size_of(dtype))};
}

struct Division {
  const Sharding& sharding;
  ShardExchange::Options exchange;
};

void add_group(StepExchanges::Unit& unit, const ShardGroup& group, const Division& division) {
  const Sharding& sharding = division.sharding;
  if (group.trained() || sharding.divides_weights())
    unit.gather.push_back(gather_call(sharding.ranks, group.dtype, group.elements() / sharding.ranks));
  if (sharding.on_host) unit.from_host += static_cast<double>(group.own_values.bytes());
  if (!group.trained()) return;
  if (ShardExchange::scatters(division.exchange, group)) {
    unit.reduce.push_back(
        {.what = Exchange::reduce,
         .name = fmt::format("reduce_scatter of {} {}", group.elements(), name_of(*group.grad_dtype)),
         .bytes = static_cast<double>(group.elements()) * static_cast<double>(size_of(*group.grad_dtype))});
    return;
  }
  const std::int64_t columns = ShardExchange::max_columns(division.exchange, sharding.ranks);
  const std::int64_t row = group.longest_row();
  for (std::int64_t begin = 0; begin < row; begin += columns)
    unit.reduce.push_back(reduce_call(sharding.ranks, *group.grad_dtype, std::min(columns, row - begin)));
}

// As GradientReducer, for which gradients of one type are about one piece of memory.
void add_whole(StepExchanges& all, Transformer& model, const GradientReducer::Options& reduction, int ranks) {
  std::map<DType, std::int64_t> elements;
  std::int64_t sum = 0;
  for (const Param* p : model.trained()) {
    elements[p->spec.grad_dtype.value_or(p->spec.dtype)] += p->value.numel();
    sum += p->value.numel();
  }
  if (reduction.order == ReductionOrder::ranks) {
    for (const auto& [dtype, n] : elements)
      all.step.push_back({.what = Exchange::all_reduce,
                          .name = fmt::format("all_reduce of {} {}", n, name_of(dtype)),
                          .bytes = static_cast<double>(n) * static_cast<double>(size_of(dtype))});
    return;
  }
  const GradientReducer::Layout layout(ranks, sum);
  const auto chunks = static_cast<std::size_t>(layout.chunks);
  all.micro_batch.assign(chunks, reduce_call(ranks, DType::f32, layout.row));
  all.step.assign(chunks, gather_call(ranks, DType::f32, layout.row));
}

}  // namespace

StepExchanges step_exchanges(Transformer& model, const GradientReducer::Options& reduction, int ranks) {
  StepExchanges all;
  const Sharding& sharding = model.options().sharding;
  all.units.resize(static_cast<std::size_t>(1 + model.config().layers));
  if (ranks > 1 && !sharding.divides_trained()) add_whole(all, model, reduction, ranks);
  for (const ParamStore* store : {&model.params().weights(), &model.params().adapter().store()})
    for (const ShardGroup& group : store->groups())
      add_group(all.units[static_cast<std::size_t>(group.unit)], group, {sharding, {model.device(), reduction.order}});
  return all;
}

}  // namespace qtrain
