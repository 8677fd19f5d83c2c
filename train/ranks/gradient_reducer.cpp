#include "train/ranks/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "core/timeline.h"

namespace qtrain {
namespace {

Device device_of(std::span<Param* const> trained) {
  return trained.empty() ? Device{} : trained.front()->grad.device;
}

/// Buffers for gradient reduction in device memory that begins at `memory`; if that is null, only their sizes.
struct SumsMemory {
  Messages messages = {};  ///< unless NCCL reduces
  Tensor totals;           ///< f32 sums that are kept, with micro_batches order
  Tensor rounded;          ///< copies that NCCL reduces
  std::size_t bytes = 0;

  SumsMemory(std::byte* memory, Device device, int ranks, const ReductionOptions& options,
             std::span<Param* const> trained) {
    std::int64_t wider = 0, row = 0;
    for (const Param* p : trained) {
      if (size_of(p->spec.grad_dtype.value_or(p->spec.dtype)) > size_of(options.wire)) wider += p->spec.shape.numel();
      row += (p->spec.shape.numel() + ranks - 1) / ranks;
    }
    const auto take = [&](DType dtype, Shape shape) {
      const Tensor t{memory ? memory + bytes : nullptr, dtype, shape, device};
      bytes += t.bytes();
      return t;
    };
    const bool in_order = options.order == ReductionOrder::micro_batches;
    if (ranks == 1 && !in_order) return;
    if (device.kind == DeviceKind::cuda && !in_order) {
      rounded = take(options.wire, {std::min(wider, GradientReducer::kMaxRounded)});
      return;
    }
    const Shape shape{ranks, std::min(row, GradientReducer::kMaxRow)};
    messages.sent = take(options.wire, shape);
    messages.received = take(options.wire, shape);
    if (in_order) totals = take(DType::f32, {row});
  }
};

}  // namespace

std::size_t GradientReducer::bytes(Device device, int ranks, const ReductionOptions& options,
                                   std::span<Param* const> trained) {
  return ExchangeQueue::bytes(device, options.beside) + SumsMemory(nullptr, device, ranks, options, trained).bytes;
}

GradientReducer::GradientReducer(Collective& ranks, const ReductionOptions& options, std::span<Param* const> trained)
    : GradientExchange(options, {}),
      ranks_(ranks),
      device_(device_of(trained)),
      queue_(device_, options.beside, [&ranks] { ranks.disconnect(); }) {
  if (ranks.size() == 1 && !in_order()) return;
  set_buckets(make_buckets(trained, ranks.size(), options.bucket_bytes, options.wire));
  const std::size_t bytes = SumsMemory(nullptr, device_, ranks.size(), options, trained).bytes;
  if (bytes == 0) return;
  memory_ = DeviceMemory(device_, bytes, "gradient reduction buffers");
  const SumsMemory sums(memory_.data(), device_, ranks.size(), options, trained);
  messages_ = sums.messages;
  rounded_ = sums.rounded;
  if (in_order()) divide_totals(sums.totals);
}

void GradientReducer::divide_totals(const Tensor& totals) {
  std::int64_t at = 0;
  for (GradientBucket& b : buckets()) {
    b.totals = totals.slice(at, b.row());
    at += b.row();
  }
  Stream stream(device_);
  stream.fill(totals.data, 0, totals.bytes());
  stream.synchronize();
}

Pending GradientReducer::add(Ctx& ctx, const GradientBucket& bucket, Sink::Mode mode) {
  return queue_.start(ctx, ranks_, [this, &bucket, mode](Ctx& c, Collective& ranks) {
    if (in_order()) return reduce(c, ranks, bucket, {.sum = bucket.totals, .mode = mode, .memory = messages_});
    device_.kind == DeviceKind::cuda ? add_in_place(c, ranks, bucket) : all_reduce(c, ranks, bucket, messages_);
  });
}

// Reduces with NCCL.
void GradientReducer::add_in_place(Ctx& ctx, Collective& ranks, const GradientBucket& bucket) {
  std::vector<Tensor> gradients;
  for (const GradientParts& p : bucket.parts) gradients.push_back(p.gradient);
  for (const Tensor& slab : slabs_of(std::move(gradients)))
    is_rounded(slab) ? add_rounded(ctx, ranks, slab) : ranks.all_reduce(ctx, slab, Reduction::sum);
}

void GradientReducer::add_rounded(Ctx& ctx, Collective& ranks, const Tensor& slab) {
  for (std::int64_t begin = 0; begin < slab.numel(); begin += rounded_.numel()) {
    const std::int64_t n = std::min(rounded_.numel(), slab.numel() - begin);
    const Tensor exact = slab.slice(begin, n), rounded = rounded_.slice(0, n);
    copy_alone(ctx, rounded, exact);
    ranks.all_reduce(ctx, rounded, Reduction::sum);
    copy_alone(ctx, exact, rounded);
  }
}

// Sums are not rounded, so that the bits depend neither on the number of ranks nor on sharding.
void GradientReducer::share_totals(Ctx& ctx, Collective& ranks, const GradientBucket& bucket) {
  const std::int64_t n = ranks.size(), row = messages_.row();
  for (std::int64_t begin = 0; begin < bucket.row(); begin += row) {
    const BucketColumns c{begin, std::min(row, bucket.row() - begin)};
    const Tensor all{messages_.sent.data, DType::f32, {n, c.count}, device_};  // in the memory of both messages
    ranks.all_gather(ctx, bucket.totals.slice(c.begin, c.count), all);
    unpack(ctx, bucket, c, all);
  }
  clear_alone(ctx, bucket.totals);  // for the next step
}

void GradientReducer::finish_step(Ctx& ctx) {
  if (buckets().empty()) return;
  const timeline::Span span("wait for sums");
  for (const GradientBucket& bucket : buckets())
    if (in_order())
      added(bucket) =
          queue_.start(ctx, ranks_, [this, &bucket](Ctx& c, Collective& ranks) { share_totals(c, ranks, bucket); });
  GradientExchange::finish_step(ctx);
}

}  // namespace qtrain
