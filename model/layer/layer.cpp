#include "model/layer/layer.h"

#include <fmt/format.h>

namespace qtrain {

Shape TensorSpec::shape_for(std::int64_t tokens) const {
  Shape out;
  out.rank = static_cast<int>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) out.dims[i] = shape[i].of(tokens);
  return out;
}

std::string ExpertsSpec::tensor_of(std::int64_t expert) const {
  return fmt::format("{}.{}.{}.weight", module, expert, part);
}

const NormWeight& LayerWeights::operator[](VectorId id) const {
  static const NormWeight kAbsent;
  return id == VectorId::none ? kAbsent : vectors[static_cast<std::size_t>(id)];
}

TensorSet Layer::all() const {
  TensorSet set;
  for (std::size_t t = 0; t < tensors.size(); ++t) set.add(static_cast<TensorId>(t));
  return set;
}

void run_forward(const Layer& layer, LayerRun& run) {
  for (const auto& stage : layer.stages) stage->forward(run);
}

}  // namespace qtrain
