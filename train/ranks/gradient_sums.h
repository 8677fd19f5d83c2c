#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "train/ranks/gradient_buckets.h"

namespace qtrain {

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

/// Replaces gradients by their sums over several ranks, with identical bits on each. Gradients are converted to the
/// dtype of `memory` [2 * ranks, any number of elements sent to each rank at once]; each element is summed by one rank
/// in f32 in rank order, and the sum is rounded to that dtype again.
void all_reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const Tensor& memory);

/// Sums a model's gradients over ranks, in buckets. The ranks form groups that share the training state; if it is not
/// sharded, every rank is a group. Each bucket is exchanged in two steps, which depend on the order of sums:
///
/// - `reduce`, after a micro-batch: each rank sums its row of every bucket, with ReductionOrder::micro_batches over
///   all ranks and otherwise within its group. A group of one rank has these sums already.
/// - `share`, after the last one, among the replicas, which are the ranks with the same shard in all groups: with
///   ReductionOrder::micro_batches they gather the parts that each of them has summed; otherwise they add their sums.
///
/// Each element is added in rank order, so the size of buckets does not affect the bits. With ReductionOrder::ranks,
/// however, Collective adds in its own order on GPUs if gradients are not sharded or all rows of a group have the same
/// length, and on any device for sums of replicas that are not rounded.
class GradientSums {
 public:
  using Stores = std::span<const ParamStore* const>;
  /// This rank among all ranks of the run.
  struct Place {
    int rank = 0, ranks = 1;
  };
  /// The stores are on the device and sharded in the same way.
  GradientSums(const ReductionOptions& options, Place place, Stores stores);
  /// Bytes of device memory that `allocate` takes.
  std::size_t bytes() const { return staging_bytes() + total_bytes(); }
  /// Call before the first exchange. The stores must have their memory.
  void allocate();

  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  const Sharding& sharding() const { return sharding_; }
  bool in_order() const { return options_.order == ReductionOrder::micro_batches; }
  /// Whether a step reduces gradients before it shares them.
  bool reduces() const { return in_order() || sharding_.divides_trained(); }
  /// Whether the shared sums replace the gradients, so that they can only be shared after the last pass.
  bool shares_at_end() const { return in_order() && !sharding_.divides_trained(); }

  /// With Sink::Mode::accumulate the sums are added to the previous ones. Gradients that were rounded for sending are
  /// summed in their original dtype, except by NCCL.
  void reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, Sink::Mode mode) const;
  void share(Ctx& ctx, Collective& replicas, const GradientBucket& bucket) const;

 private:
  /// How a bucket is sent.
  struct Wire {
    DType dtype;
    bool rounds;       ///< gradients are rounded to it when they are reduced
    bool rounds_sums;  ///< sums are rounded to ReductionOptions::wire when replicas add them
    bool scatters;     ///< reduced by Collective::reduce_scatter: on GPUs without a prescribed order

    /// NCCL adds the gradients where they are.
    bool in_place() const { return scatters && !rounds; }
  };
  bool rounds(DType dtype) const { return options_.wire == DType::bf16 && size_of(dtype) > size_of(options_.wire); }
  bool on_gpu() const { return device_.kind == DeviceKind::cuda; }
  Wire wire_of(const GradientBucket& bucket) const;
  GradientBucket bucket_of(const ShardGroup& group) const;
  GradientBucket own_sums(const GradientBucket& bucket) const;
  std::int64_t columns_of(const GradientBucket& bucket) const;
  std::int64_t all_rows() const;
  Tensor memory_to_reduce(const GradientBucket& bucket) const;
  Tensor memory_to_share(const GradientBucket& sums) const;
  std::int64_t rounded_at_once() const;
  std::size_t staging_bytes() const;
  std::size_t total_bytes() const;
  void all_reduce_in_place(Ctx& ctx, Collective& replicas, const GradientBucket& sums) const;
  void gather_totals(Ctx& ctx, Collective& replicas, const GradientBucket& bucket) const;

  ReductionOptions options_;
  Place place_;
  const Sharding& sharding_;
  Device device_;
  std::vector<GradientBucket> buckets_;
  DeviceMemory memory_;  ///< for what is sent and received, then for totals of unsharded gradients
};

}  // namespace qtrain
