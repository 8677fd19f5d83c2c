#include "model/stages/linear.h"

#include <algorithm>
#include <optional>

#include "model/projection_parts.h"
#include "model/stages/add.h"

namespace qtrain::stages {
namespace {

/// A layer, and the tensor that it writes to or, if several layers share that tensor, its columns there.
struct LayerResult {
  LinearId layer;
  TensorId tensor;
  std::int64_t first = 0, width = 0;
};

/// The tensors of a stage besides its results.
struct LinearTensors {
  TensorId x, lora;
  std::optional<TensorId> residual = {};
  std::optional<TensorId> x_largest = {};  ///< the largest magnitudes of x
  std::optional<TensorId> y_largest = {};  ///< their gradient: those of dy, if they were found
};

class LinearStage final : public Stage {
 public:
  /// `stride`: elements per row of the tensor that all layers write to; 0 if each writes to its own.
  LinearStage(LinearTensors t, std::vector<LayerResult> results, std::int64_t stride)
      : t_(t), results_(std::move(results)), stride_(stride) {
    name = t.residual ? "linear_add" : "linear";
    reads = {t.x};
    for (const auto& more : {t.residual, t.x_largest})
      if (more) reads.add(*more);
    writes = {t.lora};
    for (const LayerResult& r : results_) writes.add(r.tensor);
    weight_reads = {t.x, t.lora};
    spaced = {t.x};
  }
  bool trains(const LayerWeights& w) const override {
    return std::ranges::any_of(results_, [&](const LayerResult& l) { return w[l.layer].trains(); });
  }
  void forward(LayerRun& r) const override {
    ProjectionForward f{.y_stride = stride_,
                        .lora_x = r.value(t_.lora),
                        .x = r.value(t_.x),
                        .scratch = r.scratch,
                        .dropout_seed = r.tokens.dropout_seed,
                        .dense = r.dense,
                        .x_stride = r.stride(t_.x)};
    if (f.x_stride != 0) f.after_x = after_x(r);
    const bool wanted = std::ranges::any_of(results_, [&](const LayerResult& l) { return !r.unread.has(l.tensor); });
    for (const LayerResult& l : results_) f.layers.push_back({r.w[l.layer], part(r.value(l.tensor), l)});
    if (!wanted) return project_to_ranks(r.ctx, f);
    f.residual = r.value(t_.residual);
    f.x_largest = r.value(t_.x_largest);
    project(r.ctx, f);
  }
  void backward(LayerRun& r) const override {
    ProjectionBackward g{.dy_stride = stride_,
                         .dx = r.grad(t_.x),
                         .x = r.value(t_.x),
                         .lora_x = r.value(t_.lora),
                         .scratch = r.scratch,
                         .dropout_seed = r.tokens.dropout_seed,
                         .dense = r.dense,
                         .x_stride = r.stride(t_.x)};
    if (g.x_stride != 0) {
      g.lora_stride = g.lora_x.numel() == 0 ? g.x_stride : g.lora_x.shape[1];
      if (g.lora_x.numel() == 0) g.lora_x = after_x(r);
    }
    if (r.stride(t_.lora) != 0) {
      g.joint_stride = r.stride(t_.lora);
      g.joint = r.idle.reshaped({r.idle.numel()}).slice(0, g.x.shape[0] * g.joint_stride);
    }
    for (const LayerResult& l : results_) g.layers.push_back({r.w[l.layer], part(r.gradient(l.tensor), l)});
    if (t_.y_largest && r.found.has(*t_.y_largest)) g.dy_largest = r.gradient(*t_.y_largest);
    project_grad(r.ctx, g);
  }

 private:
  /// A x, in the columns after x.
  Tensor after_x(LayerRun& r) const {
    std::int64_t ranks = 0;
    for (const LayerResult& l : results_) ranks += r.w[l.layer].lora.rank();
    return columns_of(r.value(t_.x), r.value(t_.x).shape[1], ranks);
  }
  Tensor part(const Tensor& t, const LayerResult& l) const {
    return stride_ == 0 ? t : columns_of(t, l.first, l.width);
  }

  LinearTensors t_;
  std::vector<LayerResult> results_;
  std::int64_t stride_;
};

}  // namespace

std::vector<TensorId> linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers) {
  std::vector<TensorId> tensors;
  std::vector<LayerResult> results;
  for (const LinearId l : layers) {
    tensors.push_back(b.tensor({.name = b.spec(l).module, .shape = {kTokens, {.fixed = b.spec(l).out}}}));
    results.push_back({l, tensors.back()});
  }
  const TensorId lora = b.lora(x, layers, ResultLayout::apart);
  b.stage(std::make_unique<LinearStage>(LinearTensors{.x = x, .lora = lora, .x_largest = b.largest_of(x)},
                                        std::move(results), 0));
  return tensors;
}

TensorId linear_add(LayerBuilder& b, const LinearOf& l, TensorId residual) {
  if (!b.config().joins_projections || b.config().residual_scale != 1)
    return add(b, residual, linear(b, l.x, {l.layer}).front());
  const LinearSpec& spec = b.spec(l.layer);
  const TensorId y = b.tensor({.name = spec.module + ".added", .shape = {kTokens, {.fixed = spec.out}}});
  b.share_residual_gradient({residual, y});
  const TensorId lora = b.lora(l.x, {&l.layer, 1}, ResultLayout::apart);
  b.stage(std::make_unique<LinearStage>(
      LinearTensors{.x = l.x, .lora = lora, .residual = residual, .x_largest = b.largest_of(l.x)},
      std::vector<LayerResult>{{l.layer, y}}, 0));
  return y;
}

TensorId joined_linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers, const std::string& name) {
  std::int64_t width = 0;
  for (const LinearId l : layers) width += b.spec(l).out;
  const TensorId y = b.tensor({.name = name, .shape = {kTokens, {.fixed = width}}});
  std::vector<LayerResult> results;
  std::int64_t first = 0;
  for (const LinearId l : layers) {
    results.push_back({l, y, first, b.spec(l).out});
    first += b.spec(l).out;
  }
  const TensorId lora = b.lora(x, layers, ResultLayout::joined);
  b.stage(std::make_unique<LinearStage>(
      LinearTensors{
          .x = x, .lora = lora, .x_largest = b.largest_of(x), .y_largest = b.declare_largest(y, HasGradient::yes)},
      std::move(results), width));
  return y;
}

}  // namespace qtrain::stages
