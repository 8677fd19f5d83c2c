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

/// The exchange of a model that every rank has whole. With ReductionOrder::micro_batches each element of the gradient
/// is added in f32 by one rank, in that order. Otherwise each element is added in the order of the ranks on a
/// processor, in buckets whose size changes no bit, and by NCCL in place on a GPU. Gradients may be rounded to bf16
/// each time that they are sent, and so may sums that go back, except those of micro-batches.
class GradientReducer : public GradientExchange {
 public:
  static constexpr std::int64_t kMaxRow = std::int64_t{1} << 18;      ///< elements that a rank sends to another at once
  static constexpr std::int64_t kMaxRounded = std::int64_t{1} << 24;  ///< elements that NCCL adds at once as bf16

  /// The trained parameters have their memory and are whole on every rank.
  GradientReducer(Collective& ranks, const ReductionOptions& options, std::span<Param* const> trained);
  /// Bytes of device memory that it takes.
  static std::size_t bytes(Device device, int ranks, const ReductionOptions& options, std::span<Param* const> trained);
  /// Waits for what is under way, or ends it where an error is.
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
  /// Whether gradients of this micro-batch are added over ranks.
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
  std::optional<ExchangeStream> stream_;  ///< beside the pass, on a GPU
  Device device_;
  std::int64_t left_ = 1;  ///< micro-batches of the step, with the one that is computed
  DeviceMemory memory_;
  Messages messages_ = {};  ///< none where NCCL adds
  Tensor shared_totals_;    ///< f32 [ranks, row], in their memory
  Tensor rounded_;          ///< bf16: what NCCL adds instead of gradients; none: it adds those
  std::vector<GradientBucket> buckets_;
  Tensor totals_;  ///< f32: of the elements that this rank adds; where they are kept
};

}  // namespace qtrain
