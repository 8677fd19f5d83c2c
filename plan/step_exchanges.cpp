#include "plan/step_exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "train/ranks/divided_model.h"
#include "train/ranks/gradient_buckets.h"
#include "train/ranks/gradient_reducer.h"

namespace qtrain {
namespace {

// The name states the number of elements of one rank.
ExchangeCall gather_call(int ranks, DType dtype, std::int64_t row) {
  return {.what = Exchange::all_gather,
          .name = fmt::format("all_gather of {} {}", row, name_of(dtype)),
          .bytes = static_cast<double>(ranks * row) * static_cast<double>(size_of(dtype))};
}

// Rows of unequal length are broadcast one by one.
ExchangeCall broadcast_call(DType dtype, std::int64_t row) {
  return {.what = Exchange::broadcast,
          .name = fmt::format("broadcast of {} {}", row, name_of(dtype)),
          .bytes = static_cast<double>(row) * static_cast<double>(size_of(dtype))};
}

// The name states the number of elements of all ranks.
ExchangeCall reduce_call(int ranks, DType dtype, std::int64_t row) {
  const std::int64_t all = ranks * row;
  return {.what = Exchange::reduce,
          .name = fmt::format("all_to_all of {} {}", all, name_of(dtype)),
          .bytes = static_cast<double>(all) * static_cast<double>(size_of(dtype))};
}

// The name states the number of elements of this rank.
ExchangeCall all_reduce_call(DType dtype, std::int64_t elements) {
  return {.what = Exchange::all_reduce,
          .name = fmt::format("all_reduce of {} {}", elements, name_of(dtype)),
          .bytes = static_cast<double>(elements) * static_cast<double>(size_of(dtype))};
}

// Within a group of ranks.
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
  ReductionOptions reduction;

  bool in_order() const { return reduction.order == ReductionOrder::micro_batches; }
  std::int64_t replicas() const { return sharding.replicas; }
  /// Elements per replica of a row, for sums in order.
  std::int64_t piece() const { return (group.longest_row() + replicas() - 1) / replicas(); }
};

void add_reductions(StepExchanges::Unit& unit, const GroupExchange& e) {
  const GroupReduction how(e.device, e.reduction, e.group);
  if (how.in_place()) {
    unit.reduce.push_back(scatter_call(how.wire, e.group.elements()));
    return;
  }
  const int ranks = e.in_order() ? e.sharding.ranks * e.sharding.replicas : e.sharding.ranks;
  const std::int64_t row = e.in_order() ? e.piece() : e.group.longest_row();
  const std::int64_t columns = GroupReduction::max_columns(e.device, ranks);
  for (std::int64_t begin = 0; begin < row; begin += columns) {
    const std::int64_t n = std::min(columns, row - begin);
    unit.reduce.push_back(how.scatters ? scatter_call(how.wire, ranks * n) : reduce_call(ranks, how.wire, n));
    if (!e.in_order()) unit.reduce.back().among = Among::group;
  }
}

ExchangeCall of_replicas(ExchangeCall call) {
  call.among = Among::replicas;
  return call;
}

// Sums of the first rank's row, or of its pieces, and the broadcast of its weights.
void add_settling(StepExchanges::Unit& unit, const GroupExchange& e) {
  const std::int64_t row = e.group.row_size(0);
  const DType dtype = *e.group.grad_dtype;
  const auto add = [&](ExchangeCall call) { unit.settle.push_back(of_replicas(std::move(call))); };
  if (e.replicas() == 1 || row == 0) return;
  if (!e.sharding.replicas_agree && e.group.cut == Cut::never)
    unit.replicate.push_back(of_replicas(broadcast_call(e.group.dtype, row)));
  if (!e.in_order() && !GroupReduction(e.device, e.reduction, e.group).rounds_sums)
    return add(all_reduce_call(dtype, row));
  const auto replicas = static_cast<int>(e.replicas());
  const std::int64_t part = (row + replicas - 1) / replicas, columns = GroupReduction::max_columns(e.device, replicas);
  for (std::int64_t begin = 0; begin < part && !e.in_order(); begin += columns) {  // like the all_reduce of a bucket
    const std::int64_t n = std::min(columns, part - begin);
    add(reduce_call(replicas, e.reduction.wire, n));
    add(gather_call(replicas, e.reduction.wire, n));
  }
  for (std::int64_t begin = 0; begin < row && e.in_order(); begin += e.piece())
    add(broadcast_call(dtype, std::min(e.piece(), row - begin)));
}

// As DividedModel gathers.
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

// Like GradientReducer on a GPU, where the gradients of one type are nearly contiguous.
void add_in_place(StepExchanges& all, const GradientBucket& bucket, const ReductionOptions& reduction) {
  std::map<DType, std::int64_t> elements;
  for (const GradientParts& p : bucket.parts) elements[p.gradient.dtype] += p.gradient.numel();
  std::vector<ExchangeCall>& calls =
      reduction.beside ? all.units[static_cast<std::size_t>(bucket.units.back())].reduce : all.step;
  for (const auto& [dtype, n] : elements) {
    const bool rounds = size_of(reduction.wire) < size_of(DType::f32) && size_of(dtype) > size_of(reduction.wire);
    const std::int64_t at_once = rounds ? GradientReducer::kMaxRounded : n;
    for (std::int64_t begin = 0; begin < n; begin += at_once)
      calls.push_back(all_reduce_call(rounds ? reduction.wire : dtype, std::min(at_once, n - begin)));
  }
}

// Collectives during the pass have no name, because the ranks choose the size of their buckets.
void add_beside(StepExchanges& all, const std::vector<Param*>& trained, DType wire) {
  for (const Param* p : trained)
    all.units[static_cast<std::size_t>(p->unit)].reduce.push_back(
        {.what = Exchange::reduce,
         .name = "",
         .bytes = static_cast<double>(p->value.numel()) * static_cast<double>(size_of(wire))});
}

void add_whole(StepExchanges& all, Transformer& model, const ReductionOptions& reduction, int ranks) {
  const std::vector<Param*> trained = model.trained();
  const bool in_order = reduction.order == ReductionOrder::micro_batches;
  const std::vector<GradientBucket> buckets = make_buckets(trained, ranks, reduction.bucket_bytes, reduction.wire);
  if (!in_order && model.device().kind == DeviceKind::cuda) {
    for (const GradientBucket& bucket : buckets) add_in_place(all, bucket, reduction);
    return;
  }
  if (reduction.beside) add_beside(all, trained, reduction.wire);
  for (const GradientBucket& bucket : buckets)
    for (std::int64_t begin = 0; begin < bucket.row(); begin += GradientReducer::kMaxRow) {
      const std::int64_t row = std::min(GradientReducer::kMaxRow, bucket.row() - begin);
      if (!reduction.beside) (in_order ? all.micro_batch : all.step).push_back(reduce_call(ranks, reduction.wire, row));
      if (in_order || !reduction.beside)
        all.step.push_back(gather_call(ranks, in_order ? DType::f32 : reduction.wire, row));
    }
}

}  // namespace

StepExchanges step_exchanges(Transformer& model, const ReductionOptions& reduction, int ranks) {
  StepExchanges all;
  const Sharding& sharding = model.options().sharding;
  all.units.resize(static_cast<std::size_t>(1 + model.config().layers));
  if (ranks > 1 && !sharding.divides_trained()) add_whole(all, model, reduction, ranks);
  for (const ParamStore* store : {&model.params().weights(), &model.params().adapter().store()})
    for (const ShardGroup& group : store->groups())
      add_group(all.units[static_cast<std::size_t>(group.unit)], {group, sharding, model.device(), reduction});
  return all;
}

}  // namespace qtrain
