#include "tests/kernels/expert_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/elementwise.h"
#include "kernels/expert_bias.h"
#include "kernels/expert_rows.h"
#include "kernels/gated_rows.h"
#include "kernels/grouped_gemm.h"
#include "kernels/router.h"

namespace qtrain::testing {
namespace {

using ops::TopKNorm;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct RouteSizes {
  std::int64_t T, E, k;
  TopKNorm norm = TopKNorm::sum_to_one;
  std::int64_t filled = 0;  ///< padding rows at the end

  std::int64_t tokens() const { return T - filled; }
};

std::string name(const RouteSizes& n) {
  return std::to_string(n.T) + "x" + std::to_string(n.E) + "x" + std::to_string(n.k) +
         (n.norm == TopKNorm::none ? "_plain" : "") + (n.filled > 0 ? "_filled" : "");
}

/// The outputs of ops::route, in the types that belong to a dtype.
struct Routed {
  Array experts, weights, probs;

  Routed(Ctx& ctx, DType d, Array& logits, const RouteSizes& n)
      : experts(DType::i32, {n.T, n.k}), weights(arithmetic_of(d), {n.T, n.k}), probs(arithmetic_of(d), {n.T, n.E}) {
    ops::route(ctx, {.experts = experts, .weights = weights, .probs = probs, .logits = logits, .norm = n.norm});
  }
};

std::vector<double> softmax_of(const std::vector<double>& x) {
  std::vector<double> p;
  for (const double v : x) p.push_back(std::exp(v));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
  return p;
}
std::vector<double> row_of(const Array& x, std::int64_t row) {
  const std::int64_t width = x.shape()[-1];
  std::vector<double> v;
  for (std::int64_t i = row * width; i < (row + 1) * width; ++i) v.push_back(x.get(i));
  return v;
}
/// The k largest, in order.
std::vector<std::size_t> largest_of(const std::vector<double>& x, std::int64_t k) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  order.resize(index(k));
  return order;
}

OpCase route_case(const RouteSizes& n) {
  return {.name = "route_" + name(n),
          .inputs = {{"logits", {n.T, n.E}}},
          .forward =
              [n](Ctx& ctx, DType d, Arrays& in) {
                Routed r(ctx, d, in[0], n);
                return Arrays{r.weights, r.probs};
              },
          .formula =
              [n](const Arrays& in) {
                std::vector<double> y;
                for (std::int64_t t = 0; t < n.T; ++t) {
                  const std::vector<double> p = softmax_of(row_of(in[0], t));
                  double sum = 0;
                  for (const std::size_t e : largest_of(p, n.k)) sum += p[e];
                  for (const std::size_t e : largest_of(p, n.k))
                    y.push_back(n.norm == TopKNorm::none ? p[e] : p[e] / sum);
                }
                return y;
              },
          .backward =
              [n](Ctx& ctx, DType d, const OpCase::Backward& b) {
                Routed r(ctx, d, b.inputs[0], n);
                Array dweights = b.dy.as(arithmetic_of(d));
                ops::route_grad(ctx, {.dlogits = b.gradients[0],
                                      .dweights = dweights,
                                      .experts = r.experts,
                                      .weights = r.weights,
                                      .probs = r.probs,
                                      .norm = n.norm});
              }};
}

/// The load of all layers and its loss.
struct Balance {
  Array counts, sums, loss, factor, tokens;

  struct Given {
    std::int64_t tokens;
    double scale;
  };
  Balance(Ctx& ctx, DType d, std::vector<Routed>& layers, const Given& given)
      : counts(DType::f64, {layers[0].probs.shape()[1]}),
        sums(DType::f64, counts.shape()),
        loss(DType::f64, {1}),
        factor(arithmetic_of(d), counts.shape()),
        tokens(integers({static_cast<std::int32_t>(given.tokens)})) {
    Array scale = scalars({given.scale});
    bool first = true;
    for (Routed& r : layers) {
      const Sink::Mode mode = first ? Sink::Mode::store : Sink::Mode::accumulate;
      ops::router_load(ctx, {.counts = {counts.tensor(), mode},
                             .sums = {sums.tensor(), mode},
                             .experts = r.experts,
                             .probs = r.probs,
                             .tokens = tokens});
      first = false;
    }
    ops::router_balance(ctx, {.loss = store(loss),
                              .factor = factor,
                              .counts = counts,
                              .sums = sums,
                              .tokens = tokens,
                              .layers = static_cast<std::int64_t>(layers.size()),
                              .coefficient = 0.5,
                              .scale = scale});
  }
};

/// The loss of two layers; the gradient uses the factors 0.5 and 2 * dy.
OpCase balance_case(const RouteSizes& n) {
  const auto routed = [n](Ctx& ctx, DType d, Arrays& in) {
    std::vector<Routed> layers;
    for (Array& logits : in) layers.emplace_back(ctx, d, logits, n);
    return layers;
  };
  return {.name = "router_balance_" + name(n),
          .inputs = {{"logits0", {n.T, n.E}}, {"logits1", {n.T, n.E}}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                std::vector<Routed> layers = routed(ctx, d, in);
                return Arrays{Balance(ctx, d, layers, {n.tokens(), 1}).loss};
              },
          .formula =
              [n](const Arrays& in) {
                std::vector<double> counts(index(n.E)), means(index(n.E));
                const double rows = static_cast<double>(2 * n.tokens());
                for (const Array& logits : in)
                  for (std::int64_t t = 0; t < n.tokens(); ++t) {
                    const std::vector<double> p = softmax_of(row_of(logits, t));
                    for (const std::size_t e : largest_of(p, n.k)) counts[e] += 1 / rows;
                    for (std::size_t e = 0; e < p.size(); ++e) means[e] += p[e] / rows;
                  }
                return std::vector<double>{static_cast<double>(n.E) *
                                           std::inner_product(counts.begin(), counts.end(), means.begin(), 0.0)};
              },
          .backward =
              [=](Ctx& ctx, DType d, const OpCase::Backward& b) {
                std::vector<Routed> layers = routed(ctx, d, b.inputs);
                Balance balance(ctx, d, layers, {n.tokens(), 2 * b.dy.get(0)});
                for (std::size_t i = 0; i < layers.size(); ++i)
                  ops::route_grad(ctx, {.dlogits = b.gradients[i],
                                        .dweights = {},
                                        .experts = layers[i].experts,
                                        .weights = layers[i].weights,
                                        .probs = layers[i].probs,
                                        .factor = balance.factor,
                                        .tokens = balance.tokens});
              }};
}

OpCase dispatch_rows_case(const Choices& n, std::int64_t C) {
  return {.name = "dispatch_rows_" + n.name + "_" + std::to_string(C),
          .inputs = {{"x", {n.T, C}}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                OrderedChoices order(ctx, n);
                Arrays out{Array(d, {n.count(), C})};
                ops::dispatch_rows(ctx, {.y = out[0], .x = in[0], .slots = order.slots, .k = n.k});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                std::vector<double> y;
                for (const std::int32_t slot : n.slots())
                  for (const double v : row_of(in[0], slot / n.k)) y.push_back(v);
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                OrderedChoices order(ctx, n);
                ops::combine_rows(ctx, {.y = b.gradients[0], .x = b.dy, .places = order.places});
              }};
}

enum class Weighted : std::uint8_t { no, yes };

OpCase combine_rows_case(const Choices& n, std::int64_t C, Weighted weighted) {
  std::vector<Input> inputs{{"x", {n.count(), C}}};
  if (weighted == Weighted::yes) inputs.push_back({"weights", {n.T, n.k}, Storage::arithmetic});
  return {.name = (weighted == Weighted::yes ? "combine_rows_" : "add_rows_") + n.name + "_" + std::to_string(C),
          .inputs = inputs,
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                OrderedChoices order(ctx, n);
                Arrays out{Array(d, {n.T, C})};
                ops::CombineRows op{.y = store(out[0]), .x = in[0], .places = order.places};
                if (in.size() > 1) op.weights = in[1];
                ops::combine_rows(ctx, op);
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                std::vector<double> y(index(n.T * C));
                const std::vector<std::int32_t> slots = n.slots();
                for (std::size_t p = 0; p < slots.size(); ++p)
                  for (std::int64_t c = 0; c < C; ++c)
                    y[index(slots[p] / n.k * C + c)] +=
                        in[0].get(static_cast<std::int64_t>(p) * C + c) * (in.size() > 1 ? in[1].get(slots[p]) : 1);
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                OrderedChoices order(ctx, n);
                ops::CombineRowsGrad op{.dx = b.gradients[0],
                                        .dweights = {},
                                        .dy = b.dy,
                                        .x = b.inputs[0],
                                        .slots = order.slots,
                                        .places = order.places};
                if (b.inputs.size() > 1) op.weights = b.inputs[1], op.dweights = b.gradients[1];
                ops::combine_rows_grad(ctx, op);
              }};
}

struct GroupedSizes {
  std::int64_t N, K;
};

/// The rows of all choices multiplied by the matrices of their experts.
OpCase grouped_gemm_case(const Choices& n, const GroupedSizes& s, ops::Transpose tb) {
  const bool transposed = tb == ops::Transpose::yes;
  const std::int64_t R = n.count(), N = s.N, K = s.K;
  const Shape weight = transposed ? Shape{n.E, N, K} : Shape{n.E, K, N};
  return {
      .name = "grouped_gemm_" + n.name + "_" + std::to_string(N) + "x" + std::to_string(K) + (transposed ? "_t" : ""),
      .inputs = {{"x", {R, K}}, {"weight", weight}},
      .forward =
          [=](Ctx& ctx, DType d, Arrays& in) {
            Arrays out{Array(d, {R, N})};
            Array offsets = integers(n.offsets());
            ops::grouped_gemm(
                ctx, {.c = store(out[0]), .a = in[0], .b = in[1], .offsets = offsets, .transpose_b = tb, .alpha = 0.5});
            return out;
          },
      .formula =
          [=](const Arrays& in) {
            std::vector<double> y;
            const std::vector<std::int32_t> slots = n.slots();
            for (std::int64_t r = 0; r < R; ++r)
              for (std::int64_t i = 0; i < N; ++i) {
                const std::int64_t e = n.expert(slots[index(r)]);
                double sum = 0;
                for (std::int64_t k = 0; k < K; ++k)
                  sum += in[0].get(r * K + k) * in[1].get(e * N * K + (transposed ? i * K + k : k * N + i));
                y.push_back(sum / 2);
              }
            return y;
          },
      .backward =
          [=](Ctx& ctx, DType, const OpCase::Backward& b) {
            Array offsets = integers(n.offsets());
            ops::grouped_gemm(ctx, {.c = b.gradients[0],
                                    .a = b.dy,
                                    .b = b.inputs[1],
                                    .offsets = offsets,
                                    .transpose_b = transposed ? ops::Transpose::no : ops::Transpose::yes,
                                    .alpha = 0.5});
            Tensor dy = b.dy, x = b.inputs[0];
            ops::grouped_gemm_grad(ctx, {.c = b.gradients[1],
                                         .a = transposed ? dy : x,
                                         .b = transposed ? x : dy,
                                         .offsets = offsets,
                                         .alpha = 0.5});
          }};
}

/// Rows with the bias of their expert added.
OpCase expert_bias_case(const Choices& n, std::int64_t N) {
  const std::int64_t R = n.count();
  return {.name = "expert_bias_" + n.name + "_" + std::to_string(N),
          .inputs = {{"x", {R, N}}, {"bias", {n.E, N}, Storage::arithmetic}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(d, {R, N})};
                Array offsets = integers(n.offsets());
                ops::copy(ctx, {.y = store(out[0]), .x = in[0]});
                ops::expert_bias(ctx, {.y = out[0], .bias = in[1], .offsets = offsets});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                std::vector<double> y;
                const std::vector<std::int32_t> slots = n.slots();
                for (std::int64_t r = 0; r < R; ++r)
                  for (std::int64_t i = 0; i < N; ++i)
                    y.push_back(in[0].get(r * N + i) + in[1].get(n.expert(slots[index(r)]) * N + i));
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                Array offsets = integers(n.offsets());
                ops::copy(ctx, {.y = b.gradients[0], .x = b.dy});
                ops::expert_bias_grad(ctx, {.dbias = b.gradients[1], .dy = b.dy, .offsets = offsets});
              }};
}

/// Rows added to others behind a gate of their own.
OpCase gated_rows_case(std::int64_t T, std::int64_t C) {
  return {.name = "gated_rows_" + std::to_string(T) + "x" + std::to_string(C),
          .inputs = {{"a", {T, C}}, {"b", {T, C}}, {"gate", {T, 1}}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(d, {T, C})};
                ops::gated_rows(ctx, {.y = out[0], .a = in[0], .b = in[1], .gate = in[2]});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                std::vector<double> y;
                for (std::int64_t i = 0; i < T * C; ++i)
                  y.push_back(in[0].get(i) + in[1].get(i) / (1 + std::exp(-in[2].get(i / C))));
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                ops::copy(ctx, {.y = b.gradients[0], .x = b.dy});
                ops::gated_rows_grad(
                    ctx,
                    {.db = b.gradients[1], .dgate = b.gradients[2], .dy = b.dy, .b = b.inputs[1], .gate = b.inputs[2]});
              }};
}

}  // namespace

Array Choices::experts() const {
  Array a(DType::i32, {T, k});
  for (std::int64_t i = 0; i < count(); ++i) a.host<std::int32_t>()[i] = static_cast<std::int32_t>(expert(i));
  return a;
}
std::vector<std::int32_t> Choices::slots() const {
  std::vector<std::int32_t> order(index(count()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return expert(a) < expert(b); });
  return order;
}
std::vector<std::int32_t> Choices::offsets() const {
  std::vector<std::int32_t> ends(index(E + 1));
  for (std::int64_t i = 0; i < count(); ++i)
    for (std::int64_t e = expert(i); e < E; ++e) ++ends[index(e + 1)];
  return ends;
}

std::vector<Choices> expert_choices() {
  const auto scattered = [](std::int64_t E) {
    return [E](std::int64_t i) { return (i * i + 3 * i) % (2 * E + 1) % E; };
  };
  return {{"one_token", 1, 5, 3, [](std::int64_t i) { return 4 - 2 * i; }},
          {"one_expert", 3, 1, 1, [](std::int64_t) { return 0; }},
          {"all_to_one", 37, 5, 3, [](std::int64_t) { return 3; }},
          {"some_empty", 70, 5, 3, [](std::int64_t i) { return i % 7 < 3 ? 0 : 3; }},
          {"many", 29, 128, 8, scattered(128)}};
}

OrderedChoices::OrderedChoices(Ctx& ctx, const Choices& choices)
    : offsets(DType::i32, {choices.E + 1}),
      slots(DType::i32, {choices.count()}),
      places(DType::i32, {choices.T, choices.k}) {
  Array experts = choices.experts();
  ops::expert_order(ctx, {.offsets = offsets, .slots = slots, .places = places, .experts = experts});
}

std::vector<OpCase> with_expert_cases(std::vector<OpCase> cases) {
  for (const RouteSizes& n : {RouteSizes{1, 5, 3}, RouteSizes{9, 5, 3, TopKNorm::none}, RouteSizes{3, 1, 1},
                              RouteSizes{7, 4, 4}, RouteSizes{6, 128, 8}, RouteSizes{3, 300, 8, TopKNorm::none}})
    cases.push_back(route_case(n));
  for (const RouteSizes& n : {RouteSizes{1, 5, 3}, RouteSizes{45, 5, 3}, RouteSizes{6, 128, 8},
                              RouteSizes{.T = 45, .E = 5, .k = 3, .filled = 14}})
    cases.push_back(balance_case(n));
  for (const Choices& n : expert_choices())
    for (const std::int64_t C : {std::int64_t{7}, std::int64_t{24}}) {
      cases.push_back(dispatch_rows_case(n, C));
      cases.push_back(combine_rows_case(n, C, Weighted::yes));
    }
  cases.push_back(combine_rows_case(expert_choices()[3], 24, Weighted::no));
  for (const Choices& n : expert_choices())
    for (const std::int64_t N : {std::int64_t{7}, std::int64_t{264}})
      if (n.offsets()[1] > 0) cases.push_back(expert_bias_case(n, N));  // the first bias must have an effect
  for (const Shape& s : {Shape{1, 7}, Shape{9, 24}, Shape{3, 1300}}) cases.push_back(gated_rows_case(s[0], s[1]));
  for (const Choices& n : expert_choices()) {
    if (n.offsets()[1] == 0) continue;  // the first weight must have an effect
    for (const ops::Transpose tb : {ops::Transpose::no, ops::Transpose::yes}) {
      cases.push_back(grouped_gemm_case(n, {7, 11}, tb));
      if (n.E < 128) cases.push_back(grouped_gemm_case(n, {136, 72}, tb));  // more than one tile on a GPU
    }
  }
  return cases;
}

}  // namespace qtrain::testing
