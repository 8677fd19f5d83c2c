#include "model/stages/add.h"

#include "kernels/elementwise.h"
#include "kernels/gated_rows.h"

namespace qtrain::stages {
namespace {

// The residual stream has one gradient buffer. An unscaled branch shares it, and its adjoint has nothing to do.
class AddStage final : public Stage {
 public:
  struct Tensors {
    TensorId residual, branch, y;
  };
  AddStage(Tensors t, double scale) : t_(t), scale_(scale) {
    name = "add";
    reads = {t.residual, t.branch};
    writes = {t.y};
  }
  void forward(LayerRun& r) const override {
    ops::add(r.ctx, {.y = r.value(t_.y), .a = r.value(t_.residual), .b = r.value(t_.branch), .scale = scale_});
  }
  void backward(LayerRun& r) const override {
    if (scale_ != 1) ops::copy(r.ctx, {.y = r.grad(t_.branch), .x = r.gradient(t_.y), .scale = scale_});
  }

 private:
  Tensors t_;
  double scale_;
};

class GatedAddStage final : public Stage {
 public:
  GatedAddStage(const GatedAdd& t, TensorId y) : t_(t), y_(y) {
    name = "gated_add";
    reads = {t.residual, t.branch, t.gate};
    writes = {y};
    adjoint_reads = {t.branch, t.gate};
  }
  void forward(LayerRun& r) const override {
    ops::gated_rows(r.ctx,
                    {.y = r.value(y_), .a = r.value(t_.residual), .b = r.value(t_.branch), .gate = r.value(t_.gate)});
  }
  void backward(LayerRun& r) const override {
    const Sink db = r.grad(t_.branch), dgate = r.grad(t_.gate);
    ops::gated_rows_grad(
        r.ctx, {.db = db, .dgate = dgate, .dy = r.gradient(y_), .b = r.value(t_.branch), .gate = r.value(t_.gate)});
  }

 private:
  GatedAdd t_;
  TensorId y_;
};

}  // namespace

TensorId add(LayerBuilder& b, TensorId residual, TensorId branch) {
  const double scale = b.config().residual_scale;
  const TensorId y = b.tensor({.name = b.name(branch) + ".added", .shape = {kTokens, {.fixed = b.width(residual)}}});
  b.share_residual_gradient({residual, y});
  if (scale == 1) b.share_residual_gradient({branch});
  b.stage(std::make_unique<AddStage>(AddStage::Tensors{residual, branch, y}, scale));
  return y;
}

TensorId gated_add(LayerBuilder& b, const GatedAdd& g) {
  const TensorId y =
      b.tensor({.name = b.name(g.branch) + ".added", .shape = {kTokens, {.fixed = b.width(g.residual)}}});
  b.share_residual_gradient({g.residual, y});
  b.stage(std::make_unique<GatedAddStage>(g, y));
  return y;
}

}  // namespace qtrain::stages
