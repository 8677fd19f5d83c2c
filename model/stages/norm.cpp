#include "model/stages/norm.h"

#include "kernels/rms_norm.h"

namespace qtrain::stages {
namespace {

class NormStage final : public Stage {
 public:
  struct Tensors {
    TensorId x, y, inv_rms;
    std::optional<TensorId> largest;
  };
  NormStage(Tensors t, VectorId weight, const ModelConfig& c)
      : t_(t), weight_(weight), eps_(c.rms_norm_eps), offset_(c.norm_offset) {
    name = "norm";
    reads = {t.x};
    writes = {t.y, t.inv_rms};
    if (t.largest) writes.add(*t.largest);
    adjoint_reads = {t.x, t.inv_rms};
    spaced = {t.y};
  }
  bool trains(const LayerWeights& w) const override { return w[weight_].grad.wanted(); }
  void forward(LayerRun& r) const override {
    ops::rms_norm(r.ctx, {.y = r.value(t_.y),
                          .inv_rms = r.value(t_.inv_rms),
                          .x = r.value(t_.x),
                          .weight = r.w[weight_].weight,
                          .eps = eps_,
                          .weight_offset = offset_,
                          .y_stride = r.stride(t_.y),
                          .largest = r.value(t_.largest)});
  }
  void backward(LayerRun& r) const override {
    ops::rms_norm_grad(r.ctx, {.dx = r.grad(t_.x),
                               .dweight = r.w[weight_].grad,
                               .dy = r.gradient(t_.y),
                               .x = r.value(t_.x),
                               .weight = r.w[weight_].weight,
                               .inv_rms = r.value(t_.inv_rms),
                               .weight_offset = offset_});
  }

 private:
  Tensors t_;
  VectorId weight_;
  double eps_, offset_;
};

}  // namespace

TensorId norm(LayerBuilder& b, Norm n) {
  const std::int64_t width = b.width(n.x);
  const VectorId weight = b.vector({.name = n.name + ".weight",
                                    .size = width,
                                    .init = b.config().norm_init(),
                                    .gguf = n.gguf.empty() ? "" : n.gguf + ".weight"});
  const TensorId y =
      b.tensor({.name = n.name, .shape = {kTokens, {.fixed = width}}, .selective = Selective::recompute});
  const TensorId inv_rms = b.tensor(
      {.name = n.name + ".inv_rms", .shape = {kTokens}, .precision = Precision::full, .gradient = HasGradient::no});
  const NormStage::Tensors tensors{.x = n.x, .y = y, .inv_rms = inv_rms, .largest = b.declare_largest(y)};
  b.stage(std::make_unique<NormStage>(tensors, weight, b.config()));
  return y;
}

}  // namespace qtrain::stages
