#pragma once
#include "kernels/glu.h"
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = activation(gate) * up of both in one tensor x [rows, 2 F], with the activation of the model.
struct PackedGlu {
  TensorId x;
  ops::GluOrder order = ops::GluOrder::halves;
  double alpha = 1, limit = 0;  ///< of pairs: see ops::PackedGlu
};
TensorId packed_glu(LayerBuilder& b, const PackedGlu& g);

}  // namespace qtrain::stages
