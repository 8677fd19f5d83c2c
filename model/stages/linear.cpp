#include "model/stages/linear.h"

#include <algorithm>

namespace qtrain::stages {
namespace {

class LinearStage final : public Stage {
 public:
  LinearStage(TensorId x, std::vector<LinearId> layers, std::vector<TensorId> results, TensorId lora)
      : x_(x), layers_(std::move(layers)), results_(std::move(results)), lora_(lora) {
    name = "linear";
    reads = {x};
    writes = TensorSet(std::span<const TensorId>(results_)) | TensorSet{lora};
    weight_reads = {x, lora};
  }
  bool trains(const LayerWeights& w) const override {
    return std::ranges::any_of(layers_, [&](LinearId l) { return w[l].trains(); });
  }
  void forward(LayerRun& r) const override {
    ProjectionForward f{.lora_x = r.value(lora_),
                        .x = r.value(x_),
                        .scratch = r.scratch,
                        .dropout_seed = r.tokens.dropout_seed,
                        .dense = r.dense};
    for (std::size_t i = 0; i < layers_.size(); ++i) f.layers.push_back({r.w[layers_[i]], r.value(results_[i])});
    project(r.ctx, f);
  }
  void backward(LayerRun& r) const override {
    ProjectionBackward g{.dx = r.grad(x_),
                         .x = r.value(x_),
                         .lora_x = r.value(lora_),
                         .scratch = r.scratch,
                         .dropout_seed = r.tokens.dropout_seed,
                         .dense = r.dense};
    for (std::size_t i = 0; i < layers_.size(); ++i) g.layers.push_back({r.w[layers_[i]], r.gradient(results_[i])});
    project_grad(r.ctx, g);
  }

 private:
  TensorId x_;
  std::vector<LinearId> layers_;
  std::vector<TensorId> results_;
  TensorId lora_;
};

}  // namespace

std::vector<TensorId> linear(LayerBuilder& b, TensorId x, const std::vector<LinearId>& layers) {
  std::vector<TensorId> results;
  for (const LinearId l : layers)
    results.push_back(b.tensor({.name = b.spec(l).module, .shape = {kTokens, {.fixed = b.spec(l).out}}}));
  const TensorId lora = b.lora(layers);
  b.stage(std::make_unique<LinearStage>(x, layers, results, lora));
  return results;
}

}  // namespace qtrain::stages
