#pragma once
#include <cstdint>
#include <span>

#include "core/param_store.h"
#include "train/ranks/exchange_queue.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain {

/// Gradient exchange for an unsharded model. With ReductionOrder::micro_batches each element is summed in f32 by one
/// rank, in micro-batch order. Otherwise CPUs sum each element in rank order, in buckets whose size does not affect the
/// bits, and GPUs use in-place NCCL all-reduces. Gradients may be rounded to bf16 whenever they are sent, and so may
/// the returned sums, except with micro_batches.
class GradientReducer : public GradientExchange {
 public:
  static constexpr std::int64_t kMaxRow = std::int64_t{1} << 18;      ///< elements sent to each rank at once
  static constexpr std::int64_t kMaxRounded = std::int64_t{1} << 24;  ///< elements that NCCL reduces at once as bf16

  /// The trained parameters must have their memory and be unsharded.
  GradientReducer(Collective& ranks, const ReductionOptions& options, std::span<Param* const> trained);
  /// Bytes of device memory that this needs.
  static std::size_t bytes(Device device, int ranks, const ReductionOptions& options, std::span<Param* const> trained);

  void finish_step(Ctx& ctx) override;

 private:
  Pending add(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) override;
  void divide_totals(const Tensor& totals);
  void add_in_place(Ctx& ctx, Collective& ranks, const GradientBucket& bucket);
  void add_rounded(Ctx& ctx, Collective& ranks, const Tensor& slab);
  void share_totals(Ctx& ctx, Collective& ranks, const GradientBucket& bucket);
  bool is_rounded(const Tensor& slab) const { return rounded_ && size_of(slab.dtype) > size_of(rounded_.dtype); }

  Collective& ranks_;
  Device device_;
  DeviceMemory memory_;
  Messages messages_ = {};  ///< none if NCCL reduces
  Tensor rounded_;          ///< bf16 copies that NCCL reduces in place of wider gradients; none if not needed
  ExchangeQueue queue_;
};

}  // namespace qtrain
