#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Limits of the GPU kernels: the number of experts, and of experts per token.
inline constexpr std::int64_t kMaxExperts = 512, kMaxChoices = 32;

/// Whether a token's weights are divided by their sum (`norm_topk_prob` of transformers).
enum class TopKNorm : std::uint8_t { none, sum_to_one };

/// Chooses k of E experts for each token, and their weights: probs[t] = softmax(logits[t]) over all experts, in f32
/// (f64 with f64); experts[t] = the k experts with the largest logits in descending order; on a tie the lower index
/// comes first, and a NaN before any number; weights[t, j] = probs[t, experts[t, j]], divided by the sum of the k with
/// TopKNorm::sum_to_one, which equals a softmax over the chosen logits alone (Mixtral, gpt-oss).
/// logits [T, E] of any float type; experts i32 [T, k]; weights [T, k] and probs [T, E] f32, or f64 with f64 logits.
struct Route {
  Tensor experts, weights, probs;
  ConstTensor logits;
  TopKNorm norm = TopKNorm::sum_to_one;
};

/// The gradient of Route and of the load-balancing loss. With g[e] = factor[e] + (the gradient of probs[e] through
/// weights):
/// dlogits[t, e] (+)= probs[t, e] * (g[e] - sum over e' of probs[t, e'] * g[e']).
/// Through weights: dweights[j] at e = experts[j]; with sum_to_one (dweights[j] - dweights . weights) / S, S the sum of
/// the k probs. dlogits [T, E] of any float type; dweights [T, k] and factor [E] (see RouterBalance) may be empty and
/// then contribute nothing. `tokens` i32 [1], read on the device, is the number of leading rows that factor applies to,
/// the rest being padding; empty: all rows.
struct RouteGrad {
  Sink dlogits;
  ConstTensor dweights, experts, weights, probs;
  ConstTensor factor = {}, tokens = {};
  TopKNorm norm = TopKNorm::sum_to_one;
};

/// counts[e] (+)= number of (t, j) with experts[t, j] == e; sums[e] (+)= sum over t of probs[t, e]; both f64 [E] with
/// the same mode: the first layer of a batch stores, the others add. experts i32 [T, k], probs f32 or f64 [T, E].
/// `tokens` i32 [1], read on the device, is the number of leading rows that count; empty: all rows.
struct RouterLoad {
  Sink counts, sums;
  ConstTensor experts, probs;
  ConstTensor tokens = {};
};

/// The load-balancing loss of Switch Transformers (Fedus et al. 2021, eq. 4-6) as transformers computes it
/// (load_balancing_loss_func with its attention mask), over rows = layers * tokens rows of router logits:
/// loss = E * sum over e of (counts[e] / rows) * (sums[e] / rows); its gradient takes counts as constant:
/// factor[e] = scale * coefficient * E * counts[e] / rows^2, for RouteGrad of every layer.
/// loss f64 [1], without the coefficient; factor f32 or f64 [E]; counts, sums f64 [E]; tokens i32 [1] and scale f64 [1]
/// (empty: 1) are read on the device. Without tokens both are 0.
struct RouterBalance {
  Sink loss;
  Tensor factor;
  ConstTensor counts, sums;
  ConstTensor tokens;
  std::int64_t layers = 0;
  double coefficient = 1;
  ConstTensor scale = {};
};
void run_cpu(Ctx&, const Route&);
void run_cuda(Ctx&, const Route&);
void run_cpu(Ctx&, const RouteGrad&);
void run_cuda(Ctx&, const RouteGrad&);
void run_cpu(Ctx&, const RouterLoad&);
void run_cuda(Ctx&, const RouterLoad&);
void run_cpu(Ctx&, const RouterBalance&);
void run_cuda(Ctx&, const RouterBalance&);

inline void route(Ctx& ctx, const Route& a) {
  const std::int64_t T = a.logits.shape.rows(), E = a.logits.shape[-1], k = a.experts.shape[-1];
  check(E <= kMaxExperts && k >= 1 && k <= E && k <= kMaxChoices, "route: too many experts or choices");
  check(a.experts.numel() == T * k && a.weights.numel() == T * k && a.probs.numel() == T * E, "route: shapes differ");
  if (T > 0) dispatch(ctx, a);
}
inline void route_grad(Ctx& ctx, const RouteGrad& a) {
  if (!a.dlogits.wanted()) return;
  const std::int64_t T = a.probs.shape.rows(), E = a.probs.shape[-1], k = a.experts.shape[-1];
  check(a.dlogits.t.numel() == T * E && a.experts.numel() == T * k && a.weights.numel() == T * k,
        "route_grad: shapes differ");
  check(!a.dweights || a.dweights.numel() == T * k, "route_grad: one gradient per weight");
  check(!a.factor || a.factor.numel() == E, "route_grad: one factor per expert");
  if (T > 0) dispatch(ctx, a);
}
inline void router_load(Ctx& ctx, const RouterLoad& a) {
  if (!a.counts.wanted()) return;
  const std::int64_t E = a.probs.shape[-1];
  check(a.counts.mode == a.sums.mode && a.counts.t.numel() == E && a.sums.t.numel() == E && E <= kMaxExperts,
        "router_load: one count and one sum per expert");
  check(a.experts.shape.rows() == a.probs.shape.rows(), "router_load: shapes differ");
  dispatch(ctx, a);
}
inline void router_balance(Ctx& ctx, const RouterBalance& a) {
  const std::int64_t E = a.counts.numel();
  check(a.sums.numel() == E && a.factor.numel() == E && a.tokens.numel() == 1 && a.layers > 0,
        "router_balance: shapes differ");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
