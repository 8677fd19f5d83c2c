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

// Of rows that are not of one length each by itself.
ExchangeCall broadcast_call(DType dtype, std::int64_t row) {
  return {.what = Exchange::broadcast,
          .name = fmt::format("broadcast of {} {}", row, name_of(dtype)),
          .bytes = static_cast<double>(row) * static_cast<double>(size_of(dtype))};
}

// Named after those of all.
ExchangeCall reduce_call(int ranks, DType dtype, std::int64_t row) {
  const std::int64_t all = ranks * row;
  return {.what = Exchange::reduce,
          .name = fmt::format("all_to_all of {} {}", all, name_of(dtype)),
          .bytes = static_cast<double>(all) * static_cast<double>(size_of(dtype))};
}

ExchangeCall sum_call(DType dtype, std::int64_t elements) {
  return {.what = Exchange::all_reduce,
          .name = fmt::format("all_reduce of {} {}", elements, name_of(dtype)),
          .bytes = static_cast<double>(elements) * static_cast<double>(size_of(dtype))};
}

// Of a group of ranks.
ExchangeCall scatter_call(DType dtype, std::int64_t elements) {
  return {.what = Exchange::reduce_scatter,
          .name = fmt::format("reduce_scatter of {} {}", elements, name_of(dtype)),
          .bytes = static_cast<double>(elements) * static_cast<double>(size_of(dtype)),
          .among = Among::group};
}

/// How a group of parameters is exchanged.
struct GroupExchange {
  const ShardGroup& group;
  const Sharding& sharding;
  Device device;
  bool in_order;  ///< of the micro-batches

  ShardExchange::Options exchange() const {
    return {device, in_order ? ReductionOrder::micro_batches : ReductionOrder::ranks};
  }
  std::int64_t replicas() const { return sharding.replicas; }
  /// Of a row, in order.
  std::int64_t piece() const { return (group.longest_row() + replicas() - 1) / replicas(); }
};

void add_reductions(StepExchanges::Unit& unit, const GroupExchange& e) {
  if (ShardExchange::scatters(e.exchange(), e.group)) {
    unit.reduce.push_back(scatter_call(*e.group.grad_dtype, e.group.elements()));
    return;
  }
  const int ranks = e.in_order ? e.sharding.ranks * e.sharding.replicas : e.sharding.ranks;
  const std::int64_t row = e.in_order ? e.piece() : e.group.longest_row();
  const std::int64_t columns = ShardExchange::max_columns(e.device, ranks);
  for (std::int64_t begin = 0; begin < row; begin += columns) {
    unit.reduce.push_back(reduce_call(ranks, *e.group.grad_dtype, std::min(columns, row - begin)));
    if (!e.in_order) unit.reduce.back().among = Among::group;
  }
}

ExchangeCall of_replicas(ExchangeCall call) {
  call.among = Among::replicas;
  return call;
}

// Sums of the first rank's row, or the pieces of it; and its values.
void add_settling(StepExchanges::Unit& unit, const GroupExchange& e) {
  const std::int64_t row = e.group.row_size(0);
  const DType dtype = *e.group.grad_dtype;
  if (e.replicas() == 1 || row == 0) return;
  if (!e.sharding.replicas_agree && e.group.cut == Cut::never)
    unit.replicate.push_back(of_replicas(broadcast_call(e.group.dtype, row)));
  if (!e.in_order) return unit.settle.push_back(of_replicas(sum_call(dtype, row)));
  for (std::int64_t begin = 0; begin < row; begin += e.piece())
    unit.settle.push_back(of_replicas(broadcast_call(dtype, std::min(e.piece(), row - begin))));
}

// As ShardExchange::gather.
void add_gathers(StepExchanges::Unit& unit, const ShardGroup& group, int ranks) {
  const bool at_once = group.is_even();
  if (at_once) unit.gather.push_back(gather_call(ranks, group.dtype, group.elements() / ranks));
  for (int r = 0; r < ranks && !at_once; ++r)
    if (const std::int64_t row = group.row_size(r); row > 0) unit.gather.push_back(broadcast_call(group.dtype, row));
  for (ExchangeCall& call : unit.gather) call.among = Among::group;
}

void add_group(StepExchanges::Unit& unit, const GroupExchange& e) {
  const ShardGroup& group = e.group;
  const Sharding& sharding = e.sharding;
  if (group.trained() || sharding.divides_weights()) add_gathers(unit, group, sharding.ranks);
  if (sharding.on_host) unit.from_host += static_cast<double>(group.own_values.bytes());
  if (!group.trained()) return;
  add_reductions(unit, e);
  add_settling(unit, e);
}

// As GradientReducer on a GPU, for which gradients of one type are about one piece of memory.
void add_slabs(StepExchanges& all, const std::vector<Param*>& trained) {
  std::map<DType, std::int64_t> elements;
  for (const Param* p : trained) elements[p->spec.grad_dtype.value_or(p->spec.dtype)] += p->value.numel();
  for (const auto& [dtype, n] : elements) all.step.push_back(sum_call(dtype, n));
}

// What is exchanged beside the pass has no name: the ranks choose the size of their buckets.
void add_beside(StepExchanges& all, const std::vector<Param*>& trained) {
  for (const Param* p : trained)
    all.units[static_cast<std::size_t>(p->unit)].reduce.push_back(
        {.what = Exchange::reduce,
         .name = "",
         .bytes = static_cast<double>(p->value.numel()) * static_cast<double>(sizeof(float))});
}

void add_whole(StepExchanges& all, Transformer& model, const GradientReducer::Options& reduction, int ranks) {
  const std::vector<Param*> trained = model.trained();
  const bool in_order = reduction.order == ReductionOrder::micro_batches;
  if (!in_order && model.device().kind == DeviceKind::cuda) return add_slabs(all, trained);
  if (reduction.beside) add_beside(all, trained);
  for (const GradientBucket& bucket : make_buckets(trained, ranks, reduction.bucket_bytes))
    for (std::int64_t begin = 0; begin < bucket.row(); begin += GradientReducer::kMaxRow) {
      const std::int64_t row = std::min(GradientReducer::kMaxRow, bucket.row() - begin);
      if (!reduction.beside) (in_order ? all.micro_batch : all.step).push_back(reduce_call(ranks, DType::f32, row));
      if (in_order || !reduction.beside) all.step.push_back(gather_call(ranks, DType::f32, row));
    }
}

}  // namespace

StepExchanges step_exchanges(Transformer& model, const GradientReducer::Options& reduction, int ranks) {
  StepExchanges all;
  const Sharding& sharding = model.options().sharding;
  all.units.resize(static_cast<std::size_t>(1 + model.config().layers));
  if (ranks > 1 && !sharding.divides_trained()) add_whole(all, model, reduction, ranks);
  for (const ParamStore* store : {&model.params().weights(), &model.params().adapter().store()})
    for (const ShardGroup& group : store->groups())
      add_group(all.units[static_cast<std::size_t>(group.unit)],
                {group, sharding, model.device(), reduction.order == ReductionOrder::micro_batches});
  return all;
}

}  // namespace qtrain
