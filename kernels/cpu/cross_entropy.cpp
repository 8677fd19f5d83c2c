#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

/// A running log-sum-exp: log(sum e^x) = max + log(sum e^(x - max)).
template <class A>
struct LogSumExp {
  A max = -std::numeric_limits<A>::infinity();
  A sum = 0;

  A value() const { return max + std::log(sum); }
};

/// Adds up to kBlock values, which stay in the first-level cache between its two passes.
template <class T>
void add_block(LogSumExp<Acc<T>>& total, const T* x, std::int64_t n) {
  using A = Acc<T>;
  Vec<A> largest = simd::broadcast(total.max);
  std::int64_t i = 0;
  for (; i + simd::kLanes<A> <= n; i += simd::kLanes<A>) largest = simd::max(simd::load<A>(x + i), largest);
  A max = simd::max_lane<A>(largest);
  for (std::int64_t j = i; j < n; ++j) max = std::max(max, static_cast<A>(x[j]));
  if (max == -std::numeric_limits<A>::infinity()) max = std::numeric_limits<A>::lowest();  // all -inf so far
  Vec<A> sums{};
  const Vec<A> shift = simd::broadcast(max);
  for (i = 0; i + simd::kLanes<A> <= n; i += simd::kLanes<A>) sums += simd::exp(simd::load<A>(x + i) - shift);
  A sum = simd::sum(sums);
  for (; i < n; ++i) sum += simd::exp(simd::broadcast(static_cast<A>(x[i]) - max))[0];
  const A rescale = total.sum == 0 ? A{0} : std::exp(total.max - max);
  total = {.max = max, .sum = total.sum * rescale + sum};
}

template <class T>
Acc<T> log_sum_exp(const T* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 2048;
  LogSumExp<Acc<T>> total;
  for (std::int64_t i = 0; i < n; i += kBlock) add_block(total, x + i, std::min(kBlock, n - i));
  return total.value();
}

/// x = scale * e^(x - lse)
template <class T>
void scaled_softmax(T* x, std::int64_t n, Acc<T> lse, Acc<T> scale) {
  using A = Acc<T>;
  const Vec<A> shift = simd::broadcast(lse), factor = simd::broadcast(scale);
  simd::each<A>(n, [&](std::int64_t i, auto lanes) {
    simd::store<A>(x + i, factor * simd::exp(simd::load<A>(x + i, lanes) - shift), lanes);
  });
}

template <class T>
void cross_entropy_as(Ctx& ctx, const CrossEntropy& a) {
  using A = Acc<T>;
  const std::int64_t V = a.logits.shape[1];
  T* logits = a.logits.as<T>();
  A* loss = a.loss.as<A>();
  const std::int32_t* targets = a.targets.as<std::int32_t>();
  const A scale = a.gradient == Gradient::in_place ? static_cast<A>(*a.scale.as<double>()) : A{0};
  for_rows(ctx, a.logits.shape[0], V, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* row = logits + r * V;
      const std::int64_t target = targets[r];
      if (target == kNoClass) {
        loss[r] = 0;
        if (a.gradient == Gradient::in_place) std::fill(row, row + V, T(A{0}));
        continue;
      }
      check(target >= 0 && target < V, "cross_entropy: a target is outside the vocabulary");
      const A lse = log_sum_exp(row, V), logit = static_cast<A>(row[target]);
      loss[r] = lse - logit;
      if (a.gradient == Gradient::none) continue;
      scaled_softmax(row, V, lse, scale);
      // From the unrounded difference, so that a confident row keeps its small gradient in bf16.
      row[target] = static_cast<T>(scale * std::expm1(logit - lse));
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const CrossEntropy& a) {
  dispatch_float(a.logits.dtype, [&]<class T>() { cross_entropy_as<T>(ctx, a); });
}

}  // namespace qtrain::ops
