#include "train/ranks/gradient_squares.h"

#include <numeric>

#include "kernels/reduce.h"
#include "optim/optimizer.h"

namespace qtrain {
namespace {

constexpr std::int64_t segments_in(std::int64_t elements) {
  return (elements + kShardAlign - 1) / kShardAlign;
}

std::size_t segment_bytes(std::span<Param* const> trained) {
  std::int64_t segments = 0;
  for (const Param* p : trained) segments += segments_in(p->spec.shape.numel());
  return static_cast<std::size_t>(segments) * sizeof(double);
}

}  // namespace

std::size_t GradientSquares::bytes(Device device, ReductionOrder order, std::span<Param* const> trained) {
  return device.kind == DeviceKind::cuda && order == ReductionOrder::micro_batches ? segment_bytes(trained) : 0;
}

GradientSquares::GradientSquares(ShardRanks& ranks, Device device, ReductionOrder order, std::vector<Param*> trained)
    : ranks_(ranks),
      replicates_(replicates(device, order, ranks.group().size(), ranks.replicas().size())),
      trained_(std::move(trained)) {
  if (order == ReductionOrder::ranks || trained_.empty()) return;
  const std::size_t bytes = segment_bytes(trained_);
  const auto n = static_cast<std::int64_t>(bytes / sizeof(double));
  if (device.kind == DeviceKind::cpu) {
    on_host_.resize(static_cast<std::size_t>(n));
    segments_ = view_of(std::span(on_host_), {n});
  } else {
    memory_ = DeviceMemory(device, bytes, "squares of gradients");
    segments_ = {memory_.data(), DType::f64, {n}, device};
  }
}

void GradientSquares::add(Ctx& ctx, Tensor total) {
  if (segments_) return add_segments(ctx, total);
  add_squares(ctx, trained_, total);
  if (ranks_.group().size() > 1) ranks_.group().all_reduce(ctx, total, Reduction::sum);
  if (replicates_) ranks_.replicas().broadcast(ctx, total, 0);
}

// Elements of other ranks are 0 here, and adding 0 does not change the bits.
void GradientSquares::add_segments(Ctx& ctx, Tensor total) {
  ctx.stream().fill(segments_.data, 0, segments_.bytes());
  std::int64_t at = 0;
  for (const Param* p : trained_) {
    const std::int64_t first = at + p->own.begin / kShardAlign, n = p->own.count();
    if (n > 0)
      ops::segment_squares(ctx,
                           {.out = segments_.slice(first, segments_in(n)), .x = p->own.grad, .segment = kShardAlign});
    at += segments_in(p->spec.shape.numel());
  }
  if (ranks_.group().size() > 1) ranks_.group().all_reduce(ctx, segments_, Reduction::sum);
  if (segments_.device.kind == DeviceKind::cuda) return ops::sum(ctx, {.out = accumulate(total), .x = segments_});
  const auto sums = segments_.span<double>();
  total.as<double>()[0] = std::accumulate(sums.begin(), sums.end(), total.as<double>()[0]);
}

}  // namespace qtrain
