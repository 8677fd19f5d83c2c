#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/softcap.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::LogitCap;
using simd::Vec;

constexpr std::int64_t kBlock = 2048;

/// An online log-sum-exp: log(sum e^x) = max + log(sum e^(x - max)).
template <class A>
struct LogSumExp {
  A max = -std::numeric_limits<A>::infinity();
  A sum = 0;

  A value() const { return max + std::log(sum); }
};

/// Adds up to kBlock values, which stay in the level-1 cache between the two passes.
template <class T>
void add_block(LogSumExp<Acc<T>>& total, const T* x, std::int64_t n) {
  using A = Acc<T>;
  Vec<A> largest = simd::broadcast(total.max);
  std::int64_t i = 0;
  for (; i + simd::kLanes<A> <= n; i += simd::kLanes<A>) largest = simd::max(simd::load<A>(x + i), largest);
  A max = simd::max_lane<A>(largest);
  for (std::int64_t j = i; j < n; ++j) max = std::max(max, static_cast<A>(x[j]));
  if (max == -std::numeric_limits<A>::infinity()) max = std::numeric_limits<A>::lowest();  // all values so far are -inf
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
  LogSumExp<Acc<T>> total;
  for (std::int64_t i = 0; i < n; i += kBlock) add_block(total, x + i, std::min(kBlock, n - i));
  return total.value();
}

template <class A>
A sum_of(const A* x, std::int64_t n) {
  Vec<A> sums{};
  std::int64_t i = 0;
  for (; i + simd::kLanes<A> <= n; i += simd::kLanes<A>) sums += simd::load<A>(x + i);
  A sum = simd::sum(sums);
  for (; i < n; ++i) sum += x[i];
  return sum;
}

/// Log-sum-exp and mean of the capped logits of a row.
template <class A>
struct CappedTotals {
  A lse, mean;
};
template <class T>
CappedTotals<Acc<T>> capped_totals(const T* x, std::int64_t n, const LogitCap<Acc<T>>& cap) {
  using A = Acc<T>;
  LogSumExp<A> total;
  A block[kBlock], sum = 0;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t count = std::min(kBlock, n - i);
    simd::each<A>(count, [&](std::int64_t j, auto lanes) {
      simd::store<A>(block + j, cap.value(simd::load<A>(x + i + j, lanes)), lanes);
    });
    add_block(total, block, count);
    sum += sum_of(block, count);
  }
  return {.lse = total.value(), .mean = sum / static_cast<A>(n)};
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

template <class A>
struct OneRow {
  std::int64_t width, target;
  A scale;
  Gradient gradient;
  TargetLoss form;

  /// The weight of the target.
  A weight(A log_probability) const {
    return form.weight == TargetWeight::probability ? std::exp(log_probability) : A{1};
  }
  /// p log p is 0 for p = 0, also where its logit is -inf.
  static A loss(A weight, A log_probability) { return weight == 0 ? A{0} : weight * -log_probability; }
};
template <class T>
Acc<T> plain_row(T* x, const OneRow<Acc<T>>& row) {
  using A = Acc<T>;
  const A lse = log_sum_exp(x, row.width), logit = static_cast<A>(x[row.target]), weight = row.weight(logit - lse);
  if (row.gradient == Gradient::none) return row.loss(weight, logit - lse);
  const A scale = weight * row.scale;
  scaled_softmax(x, row.width, lse, scale);
  // From the unrounded difference, so that a confident row keeps its small gradient in bf16.
  x[row.target] = static_cast<T>(scale * std::expm1(logit - lse));
  return row.loss(weight, logit - lse);
}
/// With capped logits z or label smoothing e, whose part of the loss is e (z[target] - mean(z)).
template <class T>
Acc<T> capped_row(T* x, const OneRow<Acc<T>>& row, const LogitCap<Acc<T>>& cap) {
  using A = Acc<T>;
  const auto [lse, mean] = capped_totals(x, row.width, cap);
  const Vec<A> of_target = cap.value(simd::broadcast(static_cast<A>(x[row.target])));
  const A logit = of_target[0], weight = row.weight(logit - lse), smoothing = static_cast<A>(row.form.smoothing),
          share = smoothing / static_cast<A>(row.width), scale = weight * row.scale;
  A loss = row.loss(weight, logit - lse);
  if (smoothing > 0) loss += smoothing * (logit - mean);
  if (row.gradient == Gradient::none) return loss;
  const Vec<A> shift = simd::broadcast(lse), factor = simd::broadcast(scale), less = simd::broadcast(scale * share);
  simd::each<A>(row.width, [&](std::int64_t i, auto lanes) {
    const Vec<A> z = cap.value(simd::load<A>(x + i, lanes));
    simd::store<A>(x + i, (factor * simd::exp(z - shift) - less) * cap.slope(z), lanes);
  });
  x[row.target] = static_cast<T>(scale * (std::expm1(logit - lse) + smoothing - share) * cap.slope(of_target)[0]);
  return loss;
}

template <class T>
void cross_entropy_as(Ctx& ctx, const CrossEntropy& a) {
  using A = Acc<T>;
  const std::int64_t V = a.logits.shape[1];
  T* logits = a.logits.as<T>();
  A* loss = a.loss.as<A>();
  const std::int32_t* targets = a.targets.as<std::int32_t>();
  const A scale = a.gradient == Gradient::in_place ? static_cast<A>(*a.scale.as<double>()) : A{0};
  const LogitCap<A> cap = simd::logit_cap<A>(a.logit_scale, a.softcap);
  const bool is_plain = cap.changes_nothing() && a.form.smoothing == 0;
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
      const OneRow<A> one{.width = V, .target = target, .scale = scale, .gradient = a.gradient, .form = a.form};
      loss[r] = is_plain ? plain_row(row, one) : capped_row(row, one, cap);
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const CrossEntropy& a) {
  dispatch_float(a.logits.dtype, [&]<class T>() { cross_entropy_as<T>(ctx, a); });
}

}  // namespace qtrain::ops
