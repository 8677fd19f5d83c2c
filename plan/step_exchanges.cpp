#include "plan/step_exchanges.h"

#include <fmt/format.h>

#include <utility>

#include "train/ranks/gradient_sums.h"
#include "train/ranks/unit_weights.h"

namespace qtrain {
namespace {

/// Records the calls of this rank and exchanges nothing.
class RecordingRanks : public Solo {
 public:
  RecordingRanks(Among among, int rank, int size) : among_(among), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Ctx&, Tensor values, Reduction) override { record({Exchange::all_reduce, "all_reduce"}, values); }
  void broadcast(Ctx&, Tensor values, int) override { record({Exchange::broadcast, "broadcast"}, values); }
  void all_gather(Ctx&, ConstTensor mine, Tensor) override { record({Exchange::all_gather, "all_gather"}, mine); }
  void all_to_all(Ctx&, ConstTensor sent, Tensor) override { record({Exchange::reduce, "all_to_all"}, sent); }
  void reduce_scatter(Ctx&, ConstTensor sent, Tensor) override {
    record({Exchange::reduce_scatter, "reduce_scatter"}, sent);
  }

  /// Returns the calls since it was last called.
  std::vector<ExchangeCall> calls() { return std::exchange(calls_, {}); }

 private:
  // The name states the number of elements that this rank passes to the call. For a gather, these are its own part.
  void record(ExchangeCall call, const ConstTensor& t) {
    call.name += fmt::format(" of {} {}", t.numel(), name_of(t.dtype));
    call.bytes = static_cast<double>(t.bytes()) * (call.what == Exchange::all_gather ? size_ : 1);
    call.among = among_;
    calls_.push_back(std::move(call));
  }
  Among among_;
  int rank_, size_;
  std::vector<ExchangeCall> calls_;
};

/// Runs the exchanges of a step without memory, so that they are only recorded.
class RecordedExchanges {
 public:
  RecordedExchanges(Transformer& model, const ReductionOptions& reduction, int ranks)
      : model_(model),
        reduction_(reduction),
        sums_(reduction, {.rank = sharding_.rank, .ranks = ranks}, model.params().stores()),
        everyone_(Among::all, sharding_.rank, ranks),
        group_(Among::group, sharding_.rank, sharding_.ranks),
        replicas_(Among::replicas, 0, sharding_.replicas) {
    all_.units.resize(static_cast<std::size_t>(1 + model.config().layers));
  }

  StepExchanges run() {
    for (const ParamStore* store : model_.params().stores())
      for (const ShardGroup& group : store->groups()) gather(group);
    if (sharding_.divides_trained())
      for (const GradientBucket& bucket : sums_.buckets()) add_shards(bucket);
    else if (everyone_.size() > 1)
      add_unsharded();
    return std::move(all_);
  }

 private:
  StepExchanges::Unit& unit(int u) { return all_.units[static_cast<std::size_t>(u)]; }
  static void append(std::vector<ExchangeCall>& to, std::vector<ExchangeCall> calls) {
    to.insert(to.end(), calls.begin(), calls.end());
  }
  std::vector<ExchangeCall> reduce(const GradientBucket& bucket) {
    RecordingRanks& ranks = sums_.in_order() ? everyone_ : group_;
    if (sums_.reduces()) sums_.reduce(ctx_, ranks, bucket, Sink::Mode::store);
    return ranks.calls();
  }
  std::vector<ExchangeCall> share(RecordingRanks& replicas, const GradientBucket& bucket) {
    if (replicas.size() > 1) sums_.share(ctx_, replicas, bucket);
    return replicas.calls();
  }

  void gather(const ShardGroup& group) {
    if (sharding_.on_host) unit(group.unit).from_host += static_cast<double>(group.own_values.bytes());
    if (group.trained() || sharding_.divides_weights()) gather_rows(ctx_, group_, group);
    append(unit(group.unit).gather, group_.calls());
  }

  void add_shards(const GradientBucket& bucket) {
    StepExchanges::Unit& u = unit(bucket.group->unit);
    append(u.reduce, reduce(bucket));
    append(u.settle, share(replicas_, bucket));
    const Tensor& own = bucket.group->own_values;
    const bool differs = replicas_.size() > 1 && !sharding_.replicas_agree && bucket.group->cut == Cut::never;
    if (differs && own.numel() > 0) replicas_.broadcast(ctx_, own, 0);
    append(u.replicate, replicas_.calls());
  }

  // Collectives during the pass have no name unless NCCL adds, because the ranks choose the size of their buckets.
  void add_unsharded() {
    const bool nccl = !sums_.in_order() && model_.device().kind == DeviceKind::cuda;
    if (reduction_.beside && !nccl)
      for (const Param* p : model_.trained())
        unit(p->unit).reduce.push_back(
            {.what = Exchange::reduce,
             .name = "",
             .bytes = static_cast<double>(p->value.numel()) * static_cast<double>(size_of(reduction_.wire))});
    for (const GradientBucket& bucket : sums_.buckets()) {
      const std::vector<ExchangeCall> reduced = reduce(bucket), shared = share(everyone_, bucket);
      if (!reduction_.beside) append(all_.micro_batch, reduced);
      if (!reduction_.beside || sums_.in_order())
        append(all_.step, shared);
      else if (nccl)
        append(unit(bucket.last_unit()).reduce, shared);
    }
  }

  Transformer& model_;
  ReductionOptions reduction_;
  const Sharding& sharding_ = model_.options().sharding;
  GradientSums sums_;
  RecordingRanks everyone_, group_, replicas_;
  Ctx ctx_{{}, MatmulPrecision::storage, 1};
  StepExchanges all_;
};

}  // namespace

StepExchanges step_exchanges(Transformer& model, const ReductionOptions& reduction, int ranks) {
  return RecordedExchanges(model, reduction, ranks).run();
}

}  // namespace qtrain
