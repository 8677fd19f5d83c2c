#pragma once
#include "kernels/glu.h"
#include "model/layer/builder.h"

namespace qtrain::stages {

/// y = activation(gate) * up, with the model's activation.
TensorId glu(LayerBuilder& b, TensorId gate, TensorId up);

}  // namespace qtrain::stages
