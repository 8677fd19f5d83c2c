#include "model/stages/packed_glu.h"

namespace qtrain::stages {
namespace {

class PackedGluStage final : public Stage {
 public:
  PackedGluStage(const PackedGlu& o, TensorId y, ops::Activation activation) : o_(o), y_(y), activation_(activation) {
    name = "packed_glu";
    reads = {o.x};
    writes = {y};
    adjoint_reads = {o.x};
  }
  void forward(LayerRun& r) const override {
    ops::packed_glu(r.ctx, {.y = r.value(y_),
                            .x = r.value(o_.x),
                            .order = o_.order,
                            .activation = activation_,
                            .alpha = o_.alpha,
                            .limit = o_.limit});
  }
  void backward(LayerRun& r) const override {
    ops::packed_glu_grad(r.ctx, {.dx = r.grad(o_.x),
                                 .dy = r.gradient(y_),
                                 .x = r.value(o_.x),
                                 .order = o_.order,
                                 .activation = activation_,
                                 .alpha = o_.alpha,
                                 .limit = o_.limit});
  }

 private:
  PackedGlu o_;
  TensorId y_;
  ops::Activation activation_;
};

}  // namespace

TensorId packed_glu(LayerBuilder& b, const PackedGlu& g) {
  std::vector<Extent> shape = b.shape(g.x);
  shape.back().fixed /= 2;
  const TensorId y = b.tensor({.name = "glu", .shape = std::move(shape), .selective = Selective::recompute});
  b.stage(std::make_unique<PackedGluStage>(g, y, b.config().activation));
  return y;
}

}  // namespace qtrain::stages
