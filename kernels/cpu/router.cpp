#include "kernels/router.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;

/// probs = softmax(logits) of one row.
template <class L>
void router_softmax(const L* logits, Acc<L>* probs, std::int64_t E) {
  using A = Acc<L>;
  A max = -std::numeric_limits<A>::infinity(), sum = 0;
  for (std::int64_t e = 0; e < E; ++e) max = std::max(max, static_cast<A>(logits[e]));
  for (std::int64_t e = 0; e < E; ++e) sum += probs[e] = std::exp(static_cast<A>(logits[e]) - max);
  for (std::int64_t e = 0; e < E; ++e) probs[e] /= sum;
}

/// Whether a ranks before b; a has the higher index, so it does not on a tie.
template <class A>
bool ranks_before(A a, A b) {
  return std::isnan(b) ? false : std::isnan(a) || a > b;
}

/// Number of the T rows that are not padding.
std::int64_t real_rows(const ConstTensor& tokens, std::int64_t T) {
  return tokens ? std::min<std::int64_t>(*tokens.as<std::int32_t>(), T) : T;
}

/// Finds the k largest logits, one after another.
template <class L>
void choose_experts(const L* logits, std::int64_t E, std::span<std::int32_t> chosen) {
  using A = Acc<L>;
  for (std::size_t j = 0; j < chosen.size(); ++j) {
    const auto taken = chosen.first(j);
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < E; ++e) {
      if (std::find(taken.begin(), taken.end(), e) != taken.end()) continue;
      if (best < 0 || ranks_before(static_cast<A>(logits[e]), static_cast<A>(logits[best]))) best = e;
    }
    chosen[j] = best;
  }
}

template <class L>
void route_as(Ctx& ctx, const Route& a) {
  using A = Acc<L>;
  const std::int64_t T = a.logits.shape.rows(), E = a.logits.shape[-1], k = a.experts.shape[-1];
  const L* logits = a.logits.as<L>();
  A *probs = a.probs.as<A>(), *weights = a.weights.as<A>();
  std::int32_t* experts = a.experts.as<std::int32_t>();
  for_rows(ctx, T, E * (k + 8), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      router_softmax(logits + t * E, probs + t * E, E);
      choose_experts(logits + t * E, E, {experts + t * k, static_cast<std::size_t>(k)});
      A sum = 0;
      for (std::int64_t j = t * k; j < (t + 1) * k; ++j) sum += weights[j] = probs[t * E + experts[j]];
      if (a.norm == TopKNorm::sum_to_one)
        for (std::int64_t j = t * k; j < (t + 1) * k; ++j) weights[j] /= sum;
    }
  });
}

template <class A, class L>
void route_backward(Ctx& ctx, const RouteGrad& a) {
  const std::int64_t T = a.probs.shape.rows(), E = a.probs.shape[-1], k = a.experts.shape[-1];
  L* dlogits = a.dlogits.t.as<L>();
  const A *probs = a.probs.as<A>(), *weights = a.weights.as<A>();
  const A *dweights = a.dweights ? a.dweights.as<A>() : nullptr, *factor = a.factor ? a.factor.as<A>() : nullptr;
  const std::int32_t* experts = a.experts.as<std::int32_t>();
  const bool divided = a.norm == TopKNorm::sum_to_one;
  const std::int64_t balanced = factor ? real_rows(a.tokens, T) : 0;
  for_rows(ctx, T, E * 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<A> g(static_cast<std::size_t>(E));
    for (std::int64_t t = begin; t < end; ++t) {
      const A* p = probs + t * E;
      for (std::int64_t e = 0; e < E; ++e) g[static_cast<std::size_t>(e)] = t < balanced ? factor[e] : A{0};
      if (dweights) {
        A sum = 0, dot = 0;
        for (std::int64_t j = t * k; j < (t + 1) * k; ++j) sum += p[experts[j]], dot += dweights[j] * weights[j];
        for (std::int64_t j = t * k; j < (t + 1) * k; ++j)
          g[static_cast<std::size_t>(experts[j])] += divided ? (dweights[j] - dot) / sum : dweights[j];
      }
      A mean = 0;
      for (std::int64_t e = 0; e < E; ++e) mean += p[e] * g[static_cast<std::size_t>(e)];
      for (std::int64_t e = 0; e < E; ++e) {
        const A d = p[e] * (g[static_cast<std::size_t>(e)] - mean);
        L& y = dlogits[t * E + e];
        y = static_cast<L>(a.dlogits.adds() ? static_cast<A>(y) + d : d);
      }
    }
  });
}

/// Each task owns some experts and goes through all tokens in order.
template <class A>
void router_load_as(Ctx& ctx, const RouterLoad& a) {
  constexpr std::int64_t kOfTask = 16;
  const std::int64_t T = real_rows(a.tokens, a.probs.shape.rows());
  const std::int64_t E = a.probs.shape[-1], k = a.experts.shape[-1];
  const A* probs = a.probs.as<A>();
  const std::int32_t* experts = a.experts.as<std::int32_t>();
  double *counts = a.counts.t.as<double>(), *sums = a.sums.t.as<double>();
  for_ranges(ctx, E, kOfTask, [&](std::int64_t begin, std::int64_t end) {
    double count[kOfTask] = {}, sum[kOfTask] = {};
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t e = begin; e < end; ++e) sum[e - begin] += static_cast<double>(probs[t * E + e]);
      for (std::int64_t j = t * k; j < (t + 1) * k; ++j)
        if (experts[j] >= begin && experts[j] < end) ++count[experts[j] - begin];
    }
    for (std::int64_t e = begin; e < end; ++e) {
      counts[e] = (a.counts.adds() ? counts[e] : 0) + count[e - begin];
      sums[e] = (a.sums.adds() ? sums[e] : 0) + sum[e - begin];
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Route& a) {
  dispatch_float(a.logits.dtype, [&]<class L>() { route_as<L>(ctx, a); });
}
void run_cpu(Ctx& ctx, const RouteGrad& a) {
  if (a.probs.dtype == DType::f64) return route_backward<double, double>(ctx, a);
  dispatch_float(a.dlogits.t.dtype, [&]<class L>() { route_backward<float, L>(ctx, a); });
}
void run_cpu(Ctx& ctx, const RouterLoad& a) {
  if (a.probs.dtype == DType::f64) return router_load_as<double>(ctx, a);
  router_load_as<float>(ctx, a);
}
void run_cpu(Ctx&, const RouterBalance& a) {
  const auto counts = a.counts.span<double>(), sums = a.sums.span<double>();
  const std::int64_t tokens = std::max(*a.tokens.as<std::int32_t>(), 1);
  const auto rows = static_cast<double>(a.layers * tokens), E = static_cast<double>(counts.size());
  const double scale = a.scale ? *a.scale.as<double>() : 1;
  double total = 0;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    total += counts[e] / rows * (sums[e] / rows);
    const double factor = scale * a.coefficient * E * counts[e] / (rows * rows);
    if (a.factor.dtype == DType::f64)
      a.factor.as<double>()[e] = factor;
    else
      a.factor.as<float>()[e] = static_cast<float>(factor);
  }
  if (!a.loss.wanted()) return;
  double* loss = a.loss.t.as<double>();
  *loss = (a.loss.adds() ? *loss : 0) + E * total;
}

}  // namespace qtrain::ops
