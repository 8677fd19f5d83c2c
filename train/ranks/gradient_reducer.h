#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "core/transfer.h"
#include "dist/collective.h"
#include "train/ranks/exchange_stream.h"
#include "train/ranks/gradient_buckets.h"
#include "train/ranks/rank_access.h"

namespace qtrain {

/// In which order gradients of the micro-batches of an optimizer step are added.
enum class ReductionOrder : std::uint8_t {
  ranks,          ///< each rank its own first, then those of the ranks: the last bits depend on the number of ranks
  micro_batches,  ///< one after the other: any number of ranks gives the same bits
};

/// Adds what the ranks have computed of an optimizer step. Micro-batch i of rank r is number i * ranks + r of the step;
/// with ReductionOrder::micro_batches each element of the gradient is added in f32 by one rank, in that order. On a
/// processor each element is added in the order of the ranks otherwise, in buckets whose size changes no bit; on a GPU
/// by NCCL in place. Gradients may be rounded to bf16 on their way, each time that they are sent; sums that go back
/// too, but not those of the micro-batches.
class GradientReducer : public RankAccess {
 public:
  struct Options {
    ReductionOrder order = ReductionOrder::ranks;
    /// Gradients of units are added as soon as they are complete, beside the pass, which has to be told of this as its
    /// access; on a GPU on a stream of their own.
    bool beside = false;
    std::int64_t bucket_bytes = std::int64_t{32} << 20;  ///< that are added at once
    DType wire = DType::f32;  ///< of gradients on their way, to which they are rounded: f32 or bf16
  };
  static constexpr std::int64_t kMaxRow = std::int64_t{1} << 18;      ///< elements that a rank sends to another at once
  static constexpr std::int64_t kMaxRounded = std::int64_t{1} << 24;  ///< elements that NCCL adds at once as bf16

  /// Of trained parameters that have their memory and are whole on every rank, and of sums (f64) that are added alike.
  GradientReducer(Collective& ranks, const Options& options, std::span<Param* const> trained, Tensor sums);
  /// Of the device.
  static std::size_t bytes(Device device, int ranks, const Options& options, std::span<Param* const> trained);
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

  /// Before the first of so many micro-batches of a step.
  void begin_step(std::int64_t micro_batches) { left_ = micro_batches; }
  /// After a micro-batch of every rank, also of one without rows.
  void end_micro_batch(Ctx& ctx);
  /// Every rank has the sums over all ranks then.
  void finish(Ctx& ctx);

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
  void add_sums(Ctx& ctx);
  bool is_rounded(const Tensor& slab) const { return rounded_ && size_of(slab.dtype) > size_of(rounded_.dtype); }

  Collective& ranks_;
  Options options_;
  std::optional<ExchangeStream> stream_;  ///< beside the pass, on a GPU
  Tensor sums_;
  HostCopy sums_of_rank_;
  std::int64_t left_ = 1;  ///< micro-batches of the step, with the one that is computed
  DeviceMemory memory_;
  Messages messages_ = {};  ///< none where NCCL adds
  Tensor shared_totals_;    ///< f32 [ranks, row], in their memory
  Tensor rounded_;          ///< bf16: what NCCL adds instead of gradients; none: it adds those
  std::vector<GradientBucket> buckets_;
  Tensor totals_;  ///< f32: of the elements that this rank adds; where they are kept
  std::vector<double> total_sums_;
};

}  // namespace qtrain
