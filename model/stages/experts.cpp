#include "model/stages/experts.h"

#include <algorithm>

#include "kernels/expert_bias.h"
#include "kernels/expert_order.h"
#include "kernels/expert_rows.h"
#include "kernels/grouped_gemm.h"

namespace qtrain::stages {
namespace {

struct Choice {
  TensorId logits, experts, weights, probs;
};

class RouteStage final : public Stage {
 public:
  RouteStage(Choice t, ops::TopKNorm norm) : t_(t), norm_(norm) {
    name = "route";
    reads = {t.logits};
    writes = {t.experts, t.weights, t.probs};
    adjoint_reads = writes;
  }
  void forward(LayerRun& r) const override {
    ops::route(r.ctx, {.experts = r.value(t_.experts),
                       .weights = r.value(t_.weights),
                       .probs = r.value(t_.probs),
                       .logits = r.value(t_.logits),
                       .norm = norm_});
  }
  void backward(LayerRun& r) const override {
    ops::route_grad(r.ctx, {.dlogits = r.grad(t_.logits),
                            .dweights = r.gradient(t_.weights),
                            .experts = r.value(t_.experts),
                            .weights = r.value(t_.weights),
                            .probs = r.value(t_.probs),
                            .factor = r.tokens.balance.factor,
                            .tokens = r.tokens.balance.tokens,
                            .norm = norm_});
  }

 private:
  Choice t_;
  ops::TopKNorm norm_;
};

// Accumulates the sums of the load-balancing loss. Its gradient is part of RouteStage's.
class RouterLoadStage final : public Stage {
 public:
  explicit RouterLoadStage(const Choice& t) : t_(t) {
    name = "router_load";
    reads = {t.experts, t.probs};
  }
  void forward(LayerRun& r) const override {
    const RouterBalanceRun& run = r.tokens.balance;
    ops::router_load(r.ctx, {.counts = run.counts,
                             .sums = run.sums,
                             .experts = r.value(t_.experts),
                             .probs = r.value(t_.probs),
                             .tokens = run.tokens});
  }
  void backward(LayerRun&) const override {}

 private:
  Choice t_;
};

struct Order {
  TensorId experts, offsets, slots, places;
};

class OrderStage final : public Stage {
 public:
  explicit OrderStage(Order t) : t_(t) {
    name = "expert_order";
    reads = {t.experts};
    writes = {t.offsets, t.slots, t.places};
  }
  void forward(LayerRun& r) const override {
    ops::expert_order(r.ctx, {.offsets = r.value(t_.offsets),
                              .slots = r.value(t_.slots),
                              .places = r.value(t_.places),
                              .experts = r.value(t_.experts)});
  }
  void backward(LayerRun&) const override {}

 private:
  Order t_;
};

struct Rows {
  TensorId x, y;
  Routing routing;
  std::int64_t per_token;
};

class DispatchStage final : public Stage {
 public:
  explicit DispatchStage(const Rows& t) : t_(t) {
    name = "dispatch";
    reads = {t.x, t.routing.slots};
    writes = {t.y};
    adjoint_reads = {t.routing.places};
  }
  void forward(LayerRun& r) const override {
    ops::dispatch_rows(r.ctx,
                       {.y = r.value(t_.y), .x = r.value(t_.x), .slots = r.value(t_.routing.slots), .k = t_.per_token});
  }
  void backward(LayerRun& r) const override {
    ops::combine_rows(r.ctx, {.y = r.grad(t_.x), .x = r.gradient(t_.y), .places = r.value(t_.routing.places)});
  }

 private:
  Rows t_;
};

class GroupedLinearStage final : public Stage {
 public:
  struct Tensors {
    TensorId x, lora;
    std::vector<TensorId> results;
  };
  GroupedLinearStage(Tensors t, GroupedLinear g) : t_(std::move(t)), g_(std::move(g)) {
    name = "grouped_linear";
    reads = {t_.x, g_.offsets};
    writes = TensorSet(std::span<const TensorId>(t_.results)) | TensorSet{t_.lora};
    adjoint_reads = {g_.offsets};
    weight_reads = {t_.x, t_.lora};
  }
  bool trains(const LayerWeights& w) const override {
    return std::ranges::any_of(g_.layers, [&](ExpertsId e) { return w[e].trains(); });
  }
  void forward(LayerRun& r) const override {
    const ExpertsWeight& first = r.w[g_.layers.front()];
    if (first.adapted()) multiply(r, store(r.value(t_.lora)), {.a = r.value(t_.x), .b = first.a});
    for (std::size_t i = 0; i < t_.results.size(); ++i) {
      const ExpertsWeight& w = r.w[g_.layers[i]];
      const Tensor& y = r.value(t_.results[i]);
      multiply(r, store(y), {.a = r.value(t_.x), .b = w.weight});
      if (w.bias) ops::expert_bias(r.ctx, {.y = y, .bias = w.bias, .offsets = offsets(r)});
      if (w.adapted()) multiply(r, accumulate(y), {.a = r.value(t_.lora), .b = w.b, .alpha = w.scale});
    }
  }
  void backward(LayerRun& r) const override {
    for (std::size_t i = 0; i < t_.results.size(); ++i) {
      const ExpertsWeight& w = r.w[g_.layers[i]];
      const Tensor& dy = r.gradient(t_.results[i]);
      ops::grouped_gemm(r.ctx, {.c = r.grad(t_.x), .a = dy, .b = w.weight, .offsets = offsets(r)});
      if (w.dweight.wanted())
        ops::grouped_gemm_grad(r.ctx, {.c = w.dweight, .a = dy, .b = r.value(t_.x), .offsets = offsets(r)});
      if (w.bias) ops::expert_bias_grad(r.ctx, {.dbias = w.dbias, .dy = dy, .offsets = offsets(r)});
      if (!w.adapted()) continue;
      ops::grouped_gemm(r.ctx, {.c = r.grad(t_.lora), .a = dy, .b = w.b, .offsets = offsets(r), .alpha = w.scale});
      if (w.db.wanted())
        ops::grouped_gemm_grad(r.ctx,
                               {.c = w.db, .a = dy, .b = r.value(t_.lora), .offsets = offsets(r), .alpha = w.scale});
    }
    const ExpertsWeight& first = r.w[g_.layers.front()];
    if (!first.adapted()) return;
    const Tensor& dlora = r.gradient(t_.lora);
    if (first.da.wanted())
      ops::grouped_gemm_grad(r.ctx, {.c = first.da, .a = dlora, .b = r.value(t_.x), .offsets = offsets(r)});
    ops::grouped_gemm(r.ctx, {.c = r.grad(t_.x), .a = dlora, .b = first.a, .offsets = offsets(r)});
  }

 private:
  struct Operands {
    ConstTensor a, b;
    double alpha = 1;
  };
  const Tensor& offsets(const LayerRun& r) const { return r.value(g_.offsets); }
  // c = or += alpha * (rows times the transposed matrices of their experts).
  void multiply(LayerRun& r, Sink c, const Operands& o) const {
    ops::grouped_gemm(
        r.ctx,
        {.c = c, .a = o.a, .b = o.b, .offsets = offsets(r), .transpose_b = ops::Transpose::yes, .alpha = o.alpha});
  }

  Tensors t_;
  GroupedLinear g_;
};

class CombineStage final : public Stage {
 public:
  explicit CombineStage(const Rows& t) : t_(t) {
    name = "combine";
    reads = {t.x, t.routing.places, t.routing.weights};
    writes = {t.y};
    adjoint_reads = {t.x, t.routing.slots, t.routing.places, t.routing.weights};
  }
  void forward(LayerRun& r) const override {
    ops::combine_rows(r.ctx, {.y = store(r.value(t_.y)),
                              .x = r.value(t_.x),
                              .places = r.value(t_.routing.places),
                              .weights = r.value(t_.routing.weights)});
  }
  void backward(LayerRun& r) const override {
    const Sink dx = r.grad(t_.x), dweights = r.grad(t_.routing.weights);
    ops::combine_rows_grad(r.ctx, {.dx = dx,
                                   .dweights = dweights,
                                   .dy = r.gradient(t_.y),
                                   .x = r.value(t_.x),
                                   .slots = r.value(t_.routing.slots),
                                   .places = r.value(t_.routing.places),
                                   .weights = r.value(t_.routing.weights)});
  }

 private:
  Rows t_;
};

const ExpertsConfig& experts_of(const LayerBuilder& b) {
  return *b.config().experts;
}

/// The shape of a tensor with one row per choice: per_token rows for each token.
std::vector<Extent> rows_of(const LayerBuilder& b, std::int64_t width) {
  return {{.per_token = experts_of(b).per_token}, {.fixed = width}};
}

}  // namespace

Routing route(LayerBuilder& b, TensorId logits) {
  const ExpertsConfig& e = experts_of(b);
  const std::vector<Extent> chosen{kTokens, {.fixed = e.per_token}};
  const auto index = [&](const char* name, std::vector<Extent> shape) {
    return b.tensor(
        {.name = name, .shape = std::move(shape), .precision = Precision::index, .gradient = HasGradient::no});
  };
  const TensorId experts = index("route.experts", chosen);
  const TensorId weights = b.tensor({.name = "route.weights", .shape = chosen, .precision = Precision::full});
  const TensorId probs = b.tensor({.name = "route.probs",
                                   .shape = {kTokens, {.fixed = e.count}},
                                   .precision = Precision::full,
                                   .gradient = HasGradient::no});
  const Choice choice{logits, experts, weights, probs};
  b.stage(std::make_unique<RouteStage>(choice, e.norm));
  b.stage(std::make_unique<RouterLoadStage>(choice));
  const Routing routing{.weights = weights,
                        .offsets = index("route.offsets", {{.fixed = e.count + 1}}),
                        .slots = index("route.slots", chosen),
                        .places = index("route.places", chosen)};
  b.stage(std::make_unique<OrderStage>(Order{experts, routing.offsets, routing.slots, routing.places}));
  return routing;
}

TensorId dispatch(LayerBuilder& b, TensorId x, const Routing& routing) {
  const TensorId y = b.tensor({.name = "dispatch", .shape = rows_of(b, b.width(x)), .selective = Selective::recompute});
  b.stage(std::make_unique<DispatchStage>(Rows{x, y, routing, experts_of(b).per_token}));
  return y;
}

std::vector<TensorId> grouped_linear(LayerBuilder& b, TensorId x, const GroupedLinear& g) {
  std::vector<TensorId> results;
  for (const ExpertsId e : g.layers)
    results.push_back(b.tensor({.name = b.spec(e).module + "." + b.spec(e).part, .shape = rows_of(b, b.spec(e).out)}));
  const TensorId lora = b.lora(g.parameter, g.layers);
  b.stage(std::make_unique<GroupedLinearStage>(GroupedLinearStage::Tensors{x, lora, results}, g));
  return results;
}

TensorId combine(LayerBuilder& b, TensorId x, const Routing& routing) {
  const TensorId y = b.tensor({.name = "combine", .shape = {kTokens, {.fixed = b.width(x)}}});
  b.stage(std::make_unique<CombineStage>(Rows{x, y, routing, experts_of(b).per_token}));
  return y;
}

}  // namespace qtrain::stages
