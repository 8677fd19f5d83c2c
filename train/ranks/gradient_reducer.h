#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "dist/collective.h"
#include "train/ranks/exchange_stream.h"
#include "train/ranks/gradient_buckets.h"
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
  /// Waits for pending exchanges, or cancels them if an error is propagating.
  ~GradientReducer() override;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  void enter(Ctx& ctx, const Entry& entry) override;
  void finish_gradients(Ctx& ctx, int unit) override;
  void values_changed() override {}
  bool acts_on(const Entry& entry) const override;
  bool acts_on_gradients(int unit) const override;
  bool exchanges_gradients() const override { return options_.beside && adds(); }

  void begin_step(std::int64_t micro_batches) override { left_ = micro_batches; }
  void end_micro_batch(Ctx& ctx) override;
  void finish_step(Ctx& ctx) override;
  void finish_update(Ctx& /*ctx*/) override {}
  bool divides() const override { return false; }

 private:
  bool is_ordered() const { return options_.order == ReductionOrder::micro_batches; }
  /// Whether gradients are reduced after the current micro-batch.
  bool adds() const { return is_ordered() || left_ == 1; }

  Pending start(Ctx& ctx, const ExchangeStream::Work& work);
  void allocate(std::span<Param* const> trained);
  void begin_adding(Ctx& ctx, GradientBucket& bucket);
  void add_in_place(Ctx& ctx, Collective& ranks, const GradientBucket& bucket);
  void add_rounded(Ctx& ctx, Collective& ranks, const Tensor& slab);
  void add(Ctx& ctx, Collective& ranks, const GradientBucket& bucket);
  void share_totals(Ctx& ctx, Collective& ranks, const GradientBucket& bucket);
  void wait() const;
  bool is_rounded(const Tensor& slab) const { return rounded_ && size_of(slab.dtype) > size_of(rounded_.dtype); }

  Collective& ranks_;
  ReductionOptions options_;
  std::optional<ExchangeStream> stream_;  ///< overlaps with the pass, on a GPU
  Device device_;
  std::int64_t left_ = 1;  ///< micro-batches left in the step, including the current one
  DeviceMemory memory_;
  Messages messages_ = {};  ///< none if NCCL reduces
  Tensor shared_totals_;    ///< f32 [ranks, row], sharing memory with messages_
  Tensor rounded_;          ///< bf16 copies that NCCL reduces in place of wider gradients; none if not needed
  std::vector<GradientBucket> buckets_;
  Tensor totals_;  ///< f32 sums of the elements that this rank reduces, with micro_batches order
};

}  // namespace qtrain
