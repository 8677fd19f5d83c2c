#pragma once
#include <array>
#include <vector>

#include "model/runner.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/shard_exchange.h"

namespace qtrain {

/// Training with sharded state: all-gathers the units that passes read and reduces the gradients of a unit over the
/// ranks, both overlapped with the computation of other units.
class DividedModel : public GradientExchange {
 public:
  /// The runner's model must be sharded among these ranks; from here on its passes use this object.
  DividedModel(Runner& runner, ShardRanks& ranks, const ReductionOptions& reduction);
  /// Bytes of device memory needed besides the parameters.
  static std::size_t bytes(const ReductionOptions& reduction, const Transformer& model);

  void enter(Ctx& ctx, const Entry& entry) override;
  void finish_gradients(Ctx& ctx, int unit) override;
  void values_changed() override;
  bool acts_on(const Entry& entry) const override {
    return sharding().divides_weights() ||
           (clears_gradients() && entry.gradients == Gradients::yes && trains(entry.unit));
  }
  bool acts_on_gradients(int unit) const override { return exchanges_gradients() && trains(unit); }
  bool exchanges_gradients() const override { return sharding().divides_gradients() || adds_whole(); }

  void begin_step(std::int64_t micro_batches) override { left_ = micro_batches; }
  void end_micro_batch(Ctx& ctx) override;
  void finish_step(Ctx& ctx) override;
  void finish_update(Ctx& ctx) override;
  bool divides() const override { return true; }

 private:
  /// A buffer for an unsharded unit.
  struct Buffer {
    int unit = kNoUnit;         ///< unit whose values are in the buffer or on their way
    Pending gathered, reduced;  ///< pending gather of its values, and pending reduction of the previous unit's
                                ///< gradients
  };

  const Sharding& sharding() const { return model_.options().sharding; }
  Buffer& buffer_for(int unit);
  /// Whether the unit has any trained parameters.
  bool trains(int unit) const;
  void fetch(Ctx& ctx, int unit);
  /// Starts reducing the gradients of a group within its ranks and, after the last micro-batch, across replicas.
  Pending add(Ctx& ctx, const ShardGroup& group, Sink::Mode mode);
  void reduce_all(Ctx& ctx, Sink::Mode mode);
  void replicate(Ctx& ctx);
  bool in_order() const { return order_ == ReductionOrder::micro_batches; }
  /// Whether a unit's gradients are reduced after each micro-batch, so that the next one starts from zero.
  bool clears_gradients() const { return sharding().divides_gradients() || (beside_ && in_order()); }
  /// Whether unsharded gradients are reduced over the ranks as soon as a unit's are complete.
  bool adds_whole() const { return beside_ && !sharding().divides_gradients() && (in_order() || left_ == 1); }

  const Transformer& model_;
  std::array<const ParamStore*, 2> stores_;
  ReductionOrder order_;
  std::int64_t left_ = 1;  ///< micro-batches left in the update, including the current one
  ShardRanks& ranks_;
  ShardExchange exchange_;
  std::vector<Buffer> buffers_;
  bool beside_;                 ///< exchanges overlap with computation
  std::vector<Pending> added_;  ///< pending reductions of unsharded gradients, by unit
};

}  // namespace qtrain
