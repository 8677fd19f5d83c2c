#include "train/ranks/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "core/timeline.h"

namespace qtrain {
namespace {

bool by_nccl(Device device, ReductionOrder order) {
  return order == ReductionOrder::ranks && device.kind == DeviceKind::cuda;
}

Device device_of(std::span<Param* const> trained) {
  return trained.empty() ? Device{} : trained.front()->grad.device;
}

/// Buffer sizes for gradient reduction, in elements.
struct SumsMemory {
  std::int64_t row = 0;      ///< elements of a message per rank
  std::int64_t totals = 0;   ///< elements whose sums are kept
  std::int64_t rounded = 0;  ///< elements that NCCL reduces at once in rounded copies
  DType wire;

  SumsMemory(Device device, int ranks, const ReductionOptions& options, std::span<Param* const> trained)
      : wire(options.wire) {
    std::int64_t wider = 0;
    for (const Param* p : trained) {
      if (size_of(p->spec.grad_dtype.value_or(p->spec.dtype)) > size_of(wire)) wider += p->spec.shape.numel();
      totals += (p->spec.shape.numel() + ranks - 1) / ranks;
    }
    const bool alone = ranks == 1 && options.order == ReductionOrder::ranks, nccl = by_nccl(device, options.order);
    if (!alone && !nccl) row = std::min(totals, GradientReducer::kMaxRow);
    if (!alone && nccl) rounded = std::min(wider, GradientReducer::kMaxRounded);
    if (options.order == ReductionOrder::ranks) totals = 0;
  }
  std::size_t message_bytes(int ranks) const { return static_cast<std::size_t>(ranks * row) * size_of(wire); }
  std::size_t bytes(int ranks) const {
    return 2 * message_bytes(ranks) + static_cast<std::size_t>(totals) * sizeof(float) +
           static_cast<std::size_t>(rounded) * size_of(wire);
  }
};

}  // namespace

std::size_t GradientReducer::bytes(Device device, int ranks, const ReductionOptions& options,
                                   std::span<Param* const> trained) {
  return ExchangeQueue::bytes(device, options.beside) + SumsMemory(device, ranks, options, trained).bytes(ranks);
}

GradientReducer::GradientReducer(Collective& ranks, const ReductionOptions& options, std::span<Param* const> trained)
    : GradientExchange(options, {}),
      ranks_(ranks),
      device_(device_of(trained)),
      queue_(device_, options.beside, [&ranks] { ranks.disconnect(); }) {
  if (ranks.size() == 1 && !in_order()) return;
  set_buckets(make_buckets(trained, ranks.size(), options.bucket_bytes, options.wire));
  allocate(options, trained);
}

void GradientReducer::allocate(const ReductionOptions& options, std::span<Param* const> trained) {
  const int n = ranks_.size();
  const SumsMemory memory(device_, n, options, trained);
  if (memory.bytes(n) == 0) return;
  memory_ = DeviceMemory(device_, memory.bytes(n), "gradient reduction buffers");
  const auto part = [&](std::size_t at, DType dtype, Shape shape) {
    return Tensor{memory_.data() + at, dtype, shape, device_};
  };
  if (memory.rounded > 0) {
    rounded_ = part(0, memory.wire, {memory.rounded});
    return;
  }
  const std::size_t message = memory.message_bytes(n);
  messages_ = {part(0, memory.wire, {n, memory.row}), part(message, memory.wire, {n, memory.row})};
  shared_totals_ = part(0, DType::f32, {n, memory.row});
  if (!in_order()) return;
  const Tensor totals = part(2 * message, DType::f32, {memory.totals});
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
    const Tensor all = shared_totals_.reshaped({n * row}).slice(0, n * c.count).reshaped({n, c.count});
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
