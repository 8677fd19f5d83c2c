#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "train/ranks/rank_access.h"

namespace qtrain {

class Collective;
class Runner;
class ShardRanks;
class Transformer;

/// The order in which the gradients of an optimizer step's micro-batches are added.
enum class ReductionOrder : std::uint8_t {
  ranks,          ///< each rank accumulates its own, then ranks are summed: the last bits depend on the number of ranks
  micro_batches,  ///< one after another: the bits do not depend on the number of ranks
};

/// How gradients are reduced over ranks.
struct ReductionOptions {
  ReductionOrder order = ReductionOrder::ranks;
  /// Reduce a unit's gradients as soon as they are complete, while the pass continues; on a GPU on a separate stream.
  bool beside = false;
  std::int64_t bucket_bytes = std::int64_t{32} << 20;  ///< bytes of gradients reduced at once
  DType wire = DType::f32;  ///< dtype in which gradients are sent, rounded if wider: f32 or bf16
};

/// Reduces the gradients of an optimizer step over the ranks and, if training state is sharded (ZeRO), gives every rank
/// the weights that it computes with. Micro-batch i of rank r is number i * ranks + r of the step.
class GradientExchange : public RankAccess {
 public:
  /// Call before the first micro-batch of a step; `micro_batches` is their number per rank.
  virtual void begin_step(std::int64_t micro_batches) = 0;
  /// Call after each micro-batch on every rank, even if a rank has no rows for it.
  virtual void end_micro_batch(Ctx& ctx) = 0;
  /// Call before the update. Afterwards each rank has the summed gradients that it updates with.
  virtual void finish_step(Ctx& ctx) = 0;
  /// Call after the update if `divides`. Afterwards every rank has the updated weights.
  virtual void finish_update(Ctx& ctx) = 0;
  /// Whether each rank updates only a part of the parameters.
  virtual bool divides() const = 0;
};

/// The objects that a gradient exchange works on.
struct ExchangeParts {
  Runner& runner;                  ///< of the model whose gradients are reduced
  Collective& ranks;               ///< all ranks of the run
  ShardRanks* division = nullptr;  ///< if the model's state is sharded
};
std::unique_ptr<GradientExchange> make_gradient_exchange(const ExchangeParts& parts, const ReductionOptions& options);
/// Bytes of device memory that make_gradient_exchange needs for a (possibly sharded) model with this many ranks.
std::size_t gradient_exchange_bytes(Transformer& model, int ranks, const ReductionOptions& options);

}  // namespace qtrain
