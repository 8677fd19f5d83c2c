#include "model/stages/glu.h"

namespace qtrain::stages {
namespace {

class GluStage final : public Stage {
 public:
  struct Tensors {
    TensorId gate, up, y;
  };
  GluStage(Tensors t, ops::Activation activation) : t_(t), activation_(activation) {
    name = "glu";
    reads = {t.gate, t.up};
    writes = {t.y};
    adjoint_reads = {t.gate, t.up};
  }
  void forward(LayerRun& r) const override {
    ops::glu(r.ctx, {.y = r.value(t_.y), .gate = r.value(t_.gate), .up = r.value(t_.up), .activation = activation_});
  }
  void backward(LayerRun& r) const override {
    const Sink dgate = r.grad(t_.gate), dup = r.grad(t_.up);
    ops::glu_grad(r.ctx, {.dgate = dgate,
                          .dup = dup,
                          .dy = r.gradient(t_.y),
                          .gate = r.value(t_.gate),
                          .up = r.value(t_.up),
                          .activation = activation_});
  }

 private:
  Tensors t_;
  ops::Activation activation_;
};

class PackedGluStage final : public Stage {
 public:
  /// The largest magnitudes of y, and of the gradient of x, if they are wanted.
  struct Largest {
    std::optional<TensorId> y, dx;
  };
  PackedGluStage(const PackedGlu& o, TensorId y, Largest largest, ops::Activation activation)
      : o_(o), y_(y), largest_(largest), activation_(activation) {
    name = "packed_glu";
    reads = {o.x};
    writes = {y};
    if (largest.y) writes.add(*largest.y);
    adjoint_reads = {o.x};
    spaced = {y};
  }
  void forward(LayerRun& r) const override {
    ops::packed_glu(r.ctx, {.y = r.value(y_),
                            .x = r.value(o_.x),
                            .order = o_.order,
                            .activation = activation_,
                            .alpha = o_.alpha,
                            .limit = o_.limit,
                            .largest = r.value(largest_.y),
                            .y_stride = r.stride(y_)});
  }
  void backward(LayerRun& r) const override {
    const Sink dx = r.grad(o_.x);
    const bool finds = largest_.dx && !dx.adds();
    if (finds) r.found.add(*largest_.dx);
    ops::packed_glu_grad(r.ctx, {.dx = dx,
                                 .dy = r.gradient(y_),
                                 .x = r.value(o_.x),
                                 .order = o_.order,
                                 .activation = activation_,
                                 .alpha = o_.alpha,
                                 .limit = o_.limit,
                                 .largest = finds ? r.gradient(*largest_.dx) : Tensor{}});
  }

 private:
  PackedGlu o_;
  TensorId y_;
  Largest largest_;
  ops::Activation activation_;
};

}  // namespace

TensorId glu(LayerBuilder& b, TensorId gate, TensorId up) {
  const TensorId y = b.tensor({.name = b.free_name("glu"), .shape = b.shape(gate), .selective = Selective::recompute});
  b.stage(std::make_unique<GluStage>(GluStage::Tensors{gate, up, y}, b.config().activation));
  return y;
}

TensorId packed_glu(LayerBuilder& b, const PackedGlu& g) {
  std::vector<Extent> shape = b.shape(g.x);
  shape.back().fixed /= 2;
  const TensorId y =
      b.tensor({.name = b.free_name("glu"), .shape = std::move(shape), .selective = Selective::recompute});
  const PackedGluStage::Largest largest{.y = b.declare_largest(y), .dx = b.largest_of(g.x)};
  b.stage(std::make_unique<PackedGluStage>(g, y, largest, b.config().activation));
  return y;
}

}  // namespace qtrain::stages
