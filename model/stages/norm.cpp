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
  struct Weight {
    VectorId id;
    std::int64_t size;
  };
  NormStage(Tensors t, Weight weight, const ModelConfig& c)
      : t_(t), weight_(weight.id), width_(weight.size), eps_(c.rms_norm_eps), offset_(c.norm_offset) {
    name = "norm";
    reads = {t.x};
    writes = {t.y, t.inv_rms};
    if (t.largest) writes.add(*t.largest);
    adjoint_reads = {t.x, t.inv_rms};
    spaced = {t.y};
  }
  bool trains(const LayerWeights& w) const override { return w[weight_].grad.wanted(); }
  void forward(LayerRun& r) const override {
    ops::rms_norm(r.ctx, {.y = rows(r.value(t_.y)),
                          .inv_rms = flat(r.value(t_.inv_rms)),
                          .x = rows(r.value(t_.x)),
                          .weight = r.w[weight_].weight,
                          .eps = eps_,
                          .weight_offset = offset_,
                          .y_stride = r.stride(t_.y),
                          .largest = r.value(t_.largest)});
  }
  void backward(LayerRun& r) const override {
    const Sink dx = r.grad(t_.x);
    ops::rms_norm_grad(r.ctx, {.dx = {rows(dx.t), dx.mode},
                               .dweight = r.w[weight_].grad,
                               .dy = rows(r.gradient(t_.y)),
                               .x = rows(r.value(t_.x)),
                               .weight = r.w[weight_].weight,
                               .inv_rms = flat(r.value(t_.inv_rms)),
                               .weight_offset = offset_});
  }

 private:
  Tensor rows(const Tensor& t) const { return t.reshaped({t.numel() / width_, width_}); }
  static Tensor flat(const Tensor& t) { return t.reshaped({t.numel()}); }

  Tensors t_;
  VectorId weight_;
  std::int64_t width_;
  double eps_, offset_;
};

}  // namespace

TensorId norm(LayerBuilder& b, Norm n) {
  const std::int64_t row = b.width(n.x), width = n.head_dim > 0 ? n.head_dim : row;
  const VectorId weight = b.vector({.name = n.name + ".weight",
                                    .size = width,
                                    .init = b.config().norm_init(),
                                    .gguf = n.gguf.empty() ? "" : n.gguf + ".weight"});
  const TensorId y = b.tensor({.name = n.name, .shape = {kTokens, {.fixed = row}}, .selective = Selective::recompute});
  const TensorId inv_rms = b.tensor({.name = n.name + ".inv_rms",
                                     .shape = {{.per_token = row / width}},
                                     .precision = Precision::full,
                                     .gradient = HasGradient::no});
  NormStage::Tensors tensors{.x = n.x, .y = y, .inv_rms = inv_rms, .largest = {}};
  if (n.head_dim == 0) tensors.largest = b.declare_largest(y);
  b.stage(std::make_unique<NormStage>(tensors, NormStage::Weight{weight, width}, b.config()));
  return y;
}

}  // namespace qtrain::stages
