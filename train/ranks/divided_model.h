#pragma once
#include <array>
#include <vector>

#include "model/transformer.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/shard_exchange.h"

namespace qtrain {

/// A model in training whose states are divided among ranks: gathers the units that passes read, and adds the gradients
/// of a unit over the ranks, while others are computed.
class DividedModel : public GradientExchange {
 public:
  /// The model has its memory and is divided among these ranks; from here on its passes use this.
  DividedModel(Transformer& model, ShardRanks& ranks, const ReductionOptions& reduction);
  /// Bytes of device memory that it takes besides the parameters.
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
  /// Memory in which units are made whole.
  struct Buffer {
    int unit = kNoUnit;         ///< whose values are there or on their way
    Pending gathered, reduced;  ///< these, and the gradients of the unit that was there last
  };

  const Sharding& sharding() const { return model_.options().sharding; }
  Buffer& buffer_for(int unit);
  /// Whether anything of the unit is trained.
  bool trains(int unit) const;
  void fetch(Ctx& ctx, int unit);
  /// Begins to add the gradients of a group, and after the last micro-batch the sums of all ranks.
  Pending add(Ctx& ctx, const ShardGroup& group, Sink::Mode mode);
  void reduce_all(Ctx& ctx, Sink::Mode mode);
  void replicate(Ctx& ctx);
  bool in_order() const { return order_ == ReductionOrder::micro_batches; }
  /// Whether the gradients of a unit leave with each micro-batch, so that the next one begins at zero.
  bool clears_gradients() const { return sharding().divides_gradients() || (beside_ && in_order()); }
  /// Whether gradients that every rank has whole are added over the ranks as soon as a unit's are complete.
  bool adds_whole() const { return beside_ && !sharding().divides_gradients() && (in_order() || left_ == 1); }

  Transformer& model_;
  std::array<const ParamStore*, 2> stores_;
  ReductionOrder order_;
  std::int64_t left_ = 1;  ///< micro-batches of the update, with the one that is computed
  ShardRanks& ranks_;
  ShardExchange exchange_;
  std::vector<Buffer> buffers_;
  bool beside_;                 ///< exchanges go on while others are computed
  std::vector<Pending> added_;  ///< of each unit whose gradients are whole
};

}  // namespace qtrain
