#pragma once
#include <array>
#include <vector>

#include "model/runner.h"
#include "train/ranks/shard_exchange.h"

namespace qtrain {

/// Training with sharded state: also all-gathers the units that passes read, overlapped with the computation of other
/// units. A bucket holds the gradients of one group of parameters.
class DividedModel : public GradientExchange {
 public:
  /// The runner's model must be sharded among these ranks; from here on its passes use this object.
  DividedModel(Runner& runner, ShardRanks& ranks, const ReductionOptions& reduction);
  /// Bytes of device memory needed besides the parameters.
  static std::size_t bytes(const ReductionOptions& reduction, const Transformer& model);

  void enter(Ctx& ctx, const Entry& entry) override;
  void values_changed() override;
  bool acts_on(const Entry& entry) const override {
    return sharding().divides_weights() || GradientExchange::acts_on(entry);
  }
  void finish_update(Ctx& ctx) override;
  bool divides() const override { return true; }

 private:
  /// A buffer for an unsharded unit.
  struct Buffer {
    int unit = kNoUnit;  ///< unit whose values are in the buffer or on their way
    Pending gathered;    ///< pending gather of its values
  };

  const Sharding& sharding() const { return model_.options().sharding; }
  Buffer& buffer_for(int unit);
  void fetch(Ctx& ctx, int unit);
  /// Starts reducing the gradients of a group within its ranks and, after the last micro-batch, across replicas.
  Pending add(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) override;
  void replicate(Ctx& ctx);

  const Transformer& model_;
  std::array<const ParamStore*, 2> stores_;
  ShardRanks& ranks_;
  ShardExchange exchange_;
  std::vector<Buffer> buffers_;
};

}  // namespace qtrain
