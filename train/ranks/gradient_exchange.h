#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "train/ranks/rank_access.h"

namespace qtrain {

class Collective;
class ShardRanks;
class Transformer;

/// The order in which the gradients of an optimizer step's micro-batches are added.
enum class ReductionOrder : std::uint8_t {
  ranks,          ///< each rank adds its own first, then the ranks': the last bits depend on the number of ranks
  micro_batches,  ///< one after the other: any number of ranks gives the same bits
};

/// How gradients are added over ranks.
struct ReductionOptions {
  ReductionOrder order = ReductionOrder::ranks;
  /// A unit's gradients are added as soon as they are complete, while the pass goes on; on a GPU on a stream of its
  /// own.
  bool beside = false;
  std::int64_t bucket_bytes = std::int64_t{32} << 20;  ///< bytes of gradients that are added at once
  DType wire = DType::f32;  ///< type in which gradients are sent, and to which they are rounded: f32 or bf16
};

/// Adds the gradients of an optimizer step over the ranks and, where training states are divided (ZeRO), gives every
/// rank the weights that it computes with. Micro-batch i of rank r is number i * ranks + r of the step.
class GradientExchange : public RankAccess {
 public:
  /// Call before the first of the step's micro-batches, whose number on each rank is given.
  virtual void begin_step(std::int64_t micro_batches) = 0;
  /// Call after each micro-batch on every rank, also where a rank has no rows for it.
  virtual void end_micro_batch(Ctx& ctx) = 0;
  /// Call before the update: afterwards each rank has the sums over all ranks of the gradients that it updates with.
  virtual void finish_step(Ctx& ctx) = 0;
  /// Call after the update where `divides`: afterwards every rank has the updated weights.
  virtual void finish_update(Ctx& ctx) = 0;
  /// Whether each rank updates only a part of the parameters.
  virtual bool divides() const = 0;
};

/// What the exchange of a model's gradients refers to.
struct ExchangeParts {
  Transformer& model;              ///< whose trained parameters have their memory
  Collective& ranks;               ///< all ranks of the run
  ShardRanks* division = nullptr;  ///< where the model's states are divided among ranks
};
std::unique_ptr<GradientExchange> make_gradient_exchange(const ExchangeParts& parts, const ReductionOptions& options);
/// Bytes of device memory that it takes for a model that is divided, or not, among so many ranks.
std::size_t gradient_exchange_bytes(Transformer& model, int ranks, const ReductionOptions& options);

}  // namespace qtrain
