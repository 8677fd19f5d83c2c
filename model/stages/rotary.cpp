#include "model/stages/rotary.h"

#include <optional>

#include "kernels/rope.h"
#include "model/stages/heads.h"

namespace qtrain::stages {
namespace {

class RotaryStage final : public Stage {
 public:
  struct Tensors {
    TensorId x, y;
    std::optional<TensorId> inv_rms;  // if there is a head norm
  };
  RotaryStage(Tensors t, const Rotary& o, const ModelConfig& c)
      : t_(t), o_(o), eps_(c.rms_norm_eps), offset_(c.norm_offset) {
    name = "rotary";
    reads = {t.x};
    writes = {t.y};
    if (!t.inv_rms) return;
    writes.add(*t.inv_rms);
    adjoint_reads = {t.x, *t.inv_rms};
  }
  bool trains(const LayerWeights& w) const override { return w[o_.weight].grad.wanted(); }
  void forward(LayerRun& r) const override {
    const RotaryTable& table = r.tokens.rotary[o_.table];
    ops::rope(r.ctx, {.y = as_heads(r.value(t_.y), o_.head_dim),
                      .x = as_heads(r.value(t_.x), o_.head_dim),
                      .cos = table.cos,
                      .sin = table.sin,
                      .positions = r.tokens.positions,
                      .weight = r.w[o_.weight].weight,
                      .inv_rms = inv_rms(r),
                      .eps = eps_,
                      .weight_offset = offset_});
  }
  void backward(LayerRun& r) const override {
    const RotaryTable& table = r.tokens.rotary[o_.table];
    Sink dx = r.grad(t_.x);
    dx.t = as_heads(dx.t, o_.head_dim);
    ops::rope_grad(r.ctx, {.dx = dx,
                           .dy = as_heads(r.gradient(t_.y), o_.head_dim),
                           .cos = table.cos,
                           .sin = table.sin,
                           .positions = r.tokens.positions,
                           .x = as_heads(r.value(t_.x), o_.head_dim),
                           .weight = r.w[o_.weight].weight,
                           .inv_rms = inv_rms(r),
                           .dweight = r.w[o_.weight].grad,
                           .weight_offset = offset_});
  }

 private:
  Tensor inv_rms(const LayerRun& r) const { return t_.inv_rms ? r.value(*t_.inv_rms) : Tensor{}; }

  Tensors t_;
  Rotary o_;
  double eps_, offset_;
};

}  // namespace

TensorId rotary(LayerBuilder& b, Rotary r) {
  const std::int64_t width = b.width(r.x);
  const std::string name = b.name(r.x);
  const TensorId y = b.tensor({.name = name + ".rotated", .shape = {kTokens, {.fixed = width}}});
  std::optional<TensorId> inv_rms;
  if (r.weight != VectorId::none)
    inv_rms = b.tensor({.name = name + ".inv_rms",
                        .shape = {kTokens, {.fixed = width / r.head_dim}},
                        .precision = Precision::full,
                        .gradient = HasGradient::no});
  b.recompute_selectively(r.x);
  b.stage(std::make_unique<RotaryStage>(RotaryStage::Tensors{r.x, y, inv_rms}, r, b.config()));
  return y;
}

}  // namespace qtrain::stages
