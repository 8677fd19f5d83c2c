#pragma once
#include "kernels/glu.h"
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = activation(gate) * up, with the model's activation.
TensorId glu(LayerBuilder& b, TensorId gate, TensorId up);

/// y = activation(gate) * up with both in one tensor x [rows, 2 F], and the model's activation.
struct PackedGlu {
  TensorId x;
  ops::GluOrder order = ops::GluOrder::halves;
  double alpha = 1, limit = 0;  ///< for interleaved pairs: see ops::PackedGlu
};
TensorId packed_glu(LayerBuilder& b, const PackedGlu& g);

}  // namespace qtrain::stages
