#include "train/gradient_squares.h"

#include <algorithm>
#include <numeric>

#include "optim/optimizer.h"

namespace qtrain {
namespace {

std::int64_t segments_of(const Param& p) {
  return (p.spec.shape.numel() + kShardAlign - 1) / kShardAlign;
}

// Of each segment of what this rank owns; it begins with one.
void square_segments(Ctx& ctx, const Param& p, std::span<double> segments) {
  const std::int64_t first = p.own.begin / kShardAlign, n = p.own.count();
  dispatch_float(p.own.grad.dtype, [&]<class T>() {
    const T* const gradient = p.own.grad.as<T>();
    ctx.pool().run((n + kShardAlign - 1) / kShardAlign, [&](std::int64_t i, int) {
      double sum = 0;
      for (std::int64_t e = i * kShardAlign; e < std::min(n, (i + 1) * kShardAlign); ++e) {
        const auto value = static_cast<double>(gradient[e]);
        sum += value * value;
      }
      segments[static_cast<std::size_t>(first + i)] = sum;
    });
  });
}

}  // namespace

std::size_t GradientSquares::bytes(const Options& options, std::span<Param* const> trained) {
  if (options.order == ReductionOrder::ranks) return 0;
  std::int64_t segments = 0;
  for (const Param* p : trained) segments += segments_of(*p);
  return static_cast<std::size_t>(segments) * sizeof(double);
}

GradientSquares::GradientSquares(Collective& ranks, const Options& options, std::vector<Param*> trained)
    : ranks_(ranks), options_(options), trained_(std::move(trained)) {
  segments_.resize(bytes(options_, trained_) / sizeof(double));
}

void GradientSquares::add(Ctx& ctx, Tensor total) {
  if (options_.order == ReductionOrder::micro_batches && total.device.kind == DeviceKind::cpu)
    return add_segments(ctx, total);
  add_squares(ctx, trained_, total);
  if (options_.divided) ranks_.all_reduce(ctx, total, Reduction::sum);
}

// What another rank owns is 0 here, and adding 0 changes no bit.
void GradientSquares::add_segments(Ctx& ctx, Tensor total) {
  std::ranges::fill(segments_, 0.0);
  std::size_t at = 0;
  for (const Param* p : trained_) {
    const auto n = static_cast<std::size_t>(segments_of(*p));
    if (p->own.count() > 0) square_segments(ctx, *p, std::span(segments_).subspan(at, n));
    at += n;
  }
  const auto n = static_cast<std::int64_t>(segments_.size());
  if (options_.divided) ranks_.all_reduce(ctx, view_of(std::span(segments_), {n}), Reduction::sum);
  total.as<double>()[0] = std::accumulate(segments_.begin(), segments_.end(), total.as<double>()[0]);
}

}  // namespace qtrain
