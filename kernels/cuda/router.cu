#include "kernels/router.h"

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/sample.h"

/// One warp per token: lane l holds experts l, l + 32, ... in registers.
namespace qtrain::ops {
namespace {

constexpr unsigned kRouteThreads = 128, kRouteTokens = kRouteThreads / kWarp;

struct LargerKey {
  __device__ __forceinline__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a > b ? a : b; }
};

/// A sort key: larger for experts that are chosen first.
__device__ __forceinline__ std::uint64_t choice_key(float logit, int expert) {
  if (logit != logit) return std::uint64_t{0xffffffffu} << 32 | ~static_cast<std::uint32_t>(expert);
  return sample_key(logit, static_cast<std::uint32_t>(expert));
}

template <class L>
struct RouteArgs {
  std::int32_t* experts;
  float *weights, *probs;
  const L* logits;
  int tokens, count, choices;
  bool divided;
};

/// N experts per lane. Every lane computes the probabilities of all choices, so that each has the sum in order.
template <int N, class L>
__global__ void __launch_bounds__(kRouteThreads) route_tokens(RouteArgs<L> a) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int t = static_cast<int>(blockIdx.x * kRouteTokens + threadIdx.x / kWarp);
  if (t >= a.tokens) return;
  const std::int64_t row = std::int64_t{t} * a.count;
  float logits[N], max_logit = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int e = lane + i * kWarp;
    logits[i] = e < a.count ? to_float(a.logits[row + e]) : -INFINITY;
    max_logit = Larger{}(max_logit, logits[i]);
  }
  max_logit = warp_reduce(max_logit, Larger{});
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (lane + i * kWarp < a.count) sum += expf(logits[i] - max_logit);
  sum = warp_sum(sum);
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (lane + i * kWarp < a.count) a.probs[row + lane + i * kWarp] = expf(logits[i] - max_logit) / sum;

  std::uint32_t taken = 0;
  float weight = 0, total = 0;
  int expert = 0;
  for (int j = 0; j < a.choices; ++j) {
    std::uint64_t best = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (lane + i * kWarp < a.count && !(taken >> i & 1)) best = max(best, choice_key(logits[i], lane + i * kWarp));
    best = warp_reduce(best, LargerKey{});
    const int e = number_of_key(best);
    if (e % kWarp == lane) taken |= 1u << (e / kWarp);
    const float p = expf(logit_of_key(best) - max_logit) / sum;
    total += p;
    if (lane == j) weight = p, expert = e;
  }
  if (lane >= a.choices) return;
  const std::int64_t at = std::int64_t{t} * a.choices + lane;
  a.experts[at] = expert;
  a.weights[at] = a.divided ? weight / total : weight;
}

template <class L>
struct RouteGradArgs {
  Target<L> dlogits;
  const float *dweights, *weights, *probs, *factor;
  const std::int32_t *experts, *real;  ///< real: number of tokens that are not padding; null: all
  int tokens, count, choices;
  bool divided;
};

template <int N, class L>
__global__ void __launch_bounds__(kRouteThreads) route_tokens_grad(RouteGradArgs<L> a) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int t = static_cast<int>(blockIdx.x * kRouteTokens + threadIdx.x / kWarp);
  if (t >= a.tokens) return;
  const std::int64_t row = std::int64_t{t} * a.count, at = std::int64_t{t} * a.choices + lane;
  int expert = -1;
  float through = 0;  // the gradient of the expert's probability
  if (a.dweights) {
    const bool mine = lane < a.choices;
    if (mine) expert = a.experts[at];
    through = mine ? a.dweights[at] : 0.0f;
    if (a.divided) {
      const float dot = warp_sum(mine ? through * a.weights[at] : 0.0f);
      through = (through - dot) / warp_sum(mine ? a.probs[row + expert] : 0.0f);
    }
  }
  const bool balanced = a.factor && (!a.real || t < *a.real);
  float p[N], g[N], mean = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int e = lane + i * kWarp;
    p[i] = e < a.count ? a.probs[row + e] : 0.0f;
    g[i] = balanced && e < a.count ? a.factor[e] : 0.0f;
  }
  if (a.dweights)
    for (int j = 0; j < a.choices; ++j) {
      const int e = __shfl_sync(kAllLanes, expert, j);
      const float d = __shfl_sync(kAllLanes, through, j);
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (e == lane + i * kWarp) g[i] += d;
    }
#pragma unroll
  for (int i = 0; i < N; ++i) mean += p[i] * g[i];
  mean = warp_sum(mean);
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (lane + i * kWarp < a.count) a.dlogits.put(row + lane + i * kWarp, p[i] * (g[i] - mean));
}

/// Calls f.operator()<N>() with the number of experts per lane.
template <class F>
void dispatch_experts(std::int64_t count, const F& f) {
  constexpr int kFew = 4, kMax = static_cast<int>(kMaxExperts) / kWarp;
  if (count <= kFew * kWarp)
    f.template operator()<kFew>();
  else
    f.template operator()<kMax>();
}
Grid route_grid(std::int64_t tokens) {
  return {static_cast<unsigned>(ceil_div(tokens, std::int64_t{kRouteTokens})), kRouteThreads};
}

/// Counts and sums of part p, which are rows p, p + parts, ...: [parts, 2, count].
struct LoadParts {
  double* data;
  int parts, count;
};
/// Rows of choices; real: number of rows that count; null: all.
struct LoadRows {
  const std::int32_t* real;
  int tokens, choices;
};
/// One thread per expert.
__global__ void __launch_bounds__(kRouteThreads)
    router_load_parts(LoadParts out, const std::int32_t* experts, const float* probs, LoadRows rows) {
  const int e = static_cast<int>(blockIdx.y * kRouteThreads + threadIdx.x);
  if (e >= out.count) return;
  double count = 0, sum = 0;
  const int tokens = rows.real ? min(*rows.real, rows.tokens) : rows.tokens;
  for (int t = static_cast<int>(blockIdx.x); t < tokens; t += out.parts) {
    sum += static_cast<double>(probs[std::int64_t{t} * out.count + e]);
    for (int j = 0; j < rows.choices; ++j) count += experts[std::int64_t{t} * rows.choices + j] == e;
  }
  const std::int64_t at = std::int64_t{blockIdx.x} * 2 * out.count + e;
  out.data[at] = count;
  out.data[at + out.count] = sum;
}
__global__ void __launch_bounds__(kRouteThreads) add_load_parts(double* counts, double* sums, bool adds, LoadParts in) {
  const int e = static_cast<int>(blockIdx.x * kRouteThreads + threadIdx.x);
  if (e >= in.count) return;
  double count = 0, sum = 0;
  for (int p = 0; p < in.parts; ++p) {
    count += in.data[std::int64_t{p} * 2 * in.count + e];
    sum += in.data[std::int64_t{p} * 2 * in.count + in.count + e];
  }
  counts[e] = adds ? counts[e] + count : count;
  sums[e] = adds ? sums[e] + sum : sum;
}

struct BalanceArgs {
  double* loss;  ///< may be null
  bool adds;
  float* factor;
  const double *counts, *sums, *scale;
  const std::int32_t* tokens;
  int count, layers;
  double coefficient;
};
/// Runs in one block.
__global__ void __launch_bounds__(kRouteThreads) balance_experts(BalanceArgs a) {
  auto& partials = shared_memory<BlockPartials<double>>();
  const double rows = static_cast<double>(std::int64_t{a.layers} * max(*a.tokens, 1));
  const double loss_scale = a.count / (rows * rows), scale = loss_scale * a.coefficient * (a.scale ? *a.scale : 1.0);
  double total = 0;
  for (int e = static_cast<int>(threadIdx.x); e < a.count; e += static_cast<int>(kRouteThreads)) {
    total += a.counts[e] * a.sums[e];
    a.factor[e] = static_cast<float>(scale * a.counts[e]);
  }
  total = block_sum(total, partials);
  if (threadIdx.x == 0 && a.loss) *a.loss = (a.adds ? *a.loss : 0.0) + loss_scale * total;
}

}  // namespace

void run_cuda(Ctx& ctx, const Route& a) {
  const std::int64_t T = a.logits.shape.rows(), E = a.logits.shape[-1];
  dispatch_storage(a.logits.dtype, [&]<class L>() {
    const RouteArgs<L> args{.experts = a.experts.as<std::int32_t>(),
                            .weights = a.weights.as<float>(),
                            .probs = a.probs.as<float>(),
                            .logits = a.logits.as<L>(),
                            .tokens = static_cast<int>(T),
                            .count = static_cast<int>(E),
                            .choices = static_cast<int>(a.experts.shape[-1]),
                            .divided = a.norm == TopKNorm::sum_to_one};
    dispatch_experts(E, [&]<int N>() { launch(ctx, "route", route_tokens<N, L>, route_grid(T), args); });
  });
}

void run_cuda(Ctx& ctx, const RouteGrad& a) {
  const std::int64_t T = a.probs.shape.rows(), E = a.probs.shape[-1];
  dispatch_storage(a.dlogits.t.dtype, [&]<class L>() {
    const RouteGradArgs<L> args{.dlogits = target_of<L>(a.dlogits),
                                .dweights = a.dweights ? a.dweights.as<float>() : nullptr,
                                .weights = a.weights.as<float>(),
                                .probs = a.probs.as<float>(),
                                .factor = a.factor ? a.factor.as<float>() : nullptr,
                                .experts = a.experts.as<std::int32_t>(),
                                .real = a.tokens ? a.tokens.as<std::int32_t>() : nullptr,
                                .tokens = static_cast<int>(T),
                                .count = static_cast<int>(E),
                                .choices = static_cast<int>(a.experts.shape[-1]),
                                .divided = a.norm == TopKNorm::sum_to_one};
    dispatch_experts(E, [&]<int N>() { launch(ctx, "route_grad", route_tokens_grad<N, L>, route_grid(T), args); });
  });
}

void run_cuda(Ctx& ctx, const RouterLoad& a) {
  constexpr std::int64_t kMaxParts = 256, kRowsOfPart = 16;
  const std::int64_t T = a.probs.shape.rows(), E = a.probs.shape[-1];
  const std::int64_t parts = std::clamp<std::int64_t>(ceil_div(T, kRowsOfPart), 1, kMaxParts);
  auto* data = reinterpret_cast<double*>(ctx.scratch(static_cast<std::size_t>(parts * 2 * E) * sizeof(double)));
  const LoadParts all{.data = data, .parts = static_cast<int>(parts), .count = static_cast<int>(E)};
  const unsigned across = ceil_div(static_cast<unsigned>(E), kRouteThreads);
  const LoadRows rows{.real = a.tokens ? a.tokens.as<std::int32_t>() : nullptr,
                      .tokens = static_cast<int>(T),
                      .choices = static_cast<int>(a.experts.shape[-1])};
  launch(ctx, "router_load", router_load_parts, {dim3(static_cast<unsigned>(parts), across), kRouteThreads}, all,
         a.experts.as<std::int32_t>(), a.probs.as<float>(), rows);
  launch(ctx, "router_load", add_load_parts, {across, kRouteThreads}, a.counts.t.as<double>(), a.sums.t.as<double>(),
         a.counts.adds(), all);
}

void run_cuda(Ctx& ctx, const RouterBalance& a) {
  const BalanceArgs args{.loss = a.loss.wanted() ? a.loss.t.as<double>() : nullptr,
                         .adds = a.loss.adds(),
                         .factor = a.factor.as<float>(),
                         .counts = a.counts.as<double>(),
                         .sums = a.sums.as<double>(),
                         .scale = a.scale ? a.scale.as<double>() : nullptr,
                         .tokens = a.tokens.as<std::int32_t>(),
                         .count = static_cast<int>(a.counts.numel()),
                         .layers = static_cast<int>(a.layers),
                         .coefficient = a.coefficient};
  launch(ctx, "router_balance", balance_experts, {1, kRouteThreads, sizeof(BlockPartials<double>)}, args);
}

}  // namespace qtrain::ops
