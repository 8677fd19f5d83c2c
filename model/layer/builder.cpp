#include "model/layer/builder.h"

#include <algorithm>

namespace qtrain {

LayerBuilder::LayerBuilder(const ModelConfig& config, std::int64_t index) : config_(config), index_(index) {
  layer_.input = tensor({.name = "input", .shape = {kTokens, {.fixed = config.hidden_size}}});
  layer_.residual = {layer_.input};
}

VectorId LayerBuilder::vector(VectorSpec spec) {
  layer_.vectors.push_back(std::move(spec));
  const auto id = static_cast<VectorId>(layer_.vectors.size() - 1);
  layer_.order.emplace_back(id);
  return id;
}

LinearId LayerBuilder::linear(LinearSpec spec) {
  layer_.linears.push_back(std::move(spec));
  const auto id = static_cast<LinearId>(layer_.linears.size() - 1);
  layer_.order.emplace_back(id);
  return id;
}

ExpertsId LayerBuilder::experts(ExpertsSpec spec) {
  layer_.experts.push_back(std::move(spec));
  const auto id = static_cast<ExpertsId>(layer_.experts.size() - 1);
  layer_.order.emplace_back(id);
  return id;
}

bool LayerBuilder::has_name(const std::string& name) const {
  return std::ranges::any_of(layer_.tensors, [&](const TensorSpec& t) { return t.name == name; });
}

std::string LayerBuilder::free_name(const std::string& name) const {
  std::string free = name;
  for (int number = 2; has_name(free); ++number) free = name + std::to_string(number);
  return free;
}

TensorId LayerBuilder::tensor(TensorSpec spec) {
  check(layer_.tensors.size() < TensorSet::kCapacity, "a layer has more tensors than a TensorSet holds");
  check(!has_name(spec.name), ("two tensors of a layer are called " + spec.name).c_str());
  layer_.tensors.push_back(std::move(spec));
  return static_cast<TensorId>(layer_.tensors.size() - 1);
}

std::optional<TensorId> LayerBuilder::declare_largest(TensorId t, HasGradient gradient) {
  if (gradient == HasGradient::yes ? !config_.finds_largest : !config_.finds_largest_x) return {};
  TensorSpec spec{
      .name = name(t) + ".largest", .shape = {shape(t).front()}, .precision = Precision::full, .gradient = gradient};
  spec.selective = layer_.spec(t).selective;
  const TensorId largest = tensor(std::move(spec));
  largest_.emplace(t, largest);
  return largest;
}

std::optional<TensorId> LayerBuilder::largest_of(TensorId t) const {
  const auto found = largest_.find(t);
  return found == largest_.end() ? std::nullopt : std::optional(found->second);
}

// Its width is the sum of the ranks, which the activation layout computes.
TensorId LayerBuilder::lora(TensorId x, std::span<const LinearId> layers, ResultLayout results) {
  const TensorId t =
      tensor({.name = spec(layers.front()).module + ".lora", .shape = {kTokens, {}}, .gradient = HasGradient::no});
  layer_.groups.push_back({.layers = {layers.begin(), layers.end()}, .results = results, .x = x, .lora = t});
  return t;
}

TensorId LayerBuilder::lora(const std::string& parameter, std::span<const ExpertsId> layers) {
  const TensorId t = tensor({.name = parameter + ".lora", .shape = {{.per_token = config_.experts->per_token}, {}}});
  layer_.expert_groups.push_back({.parameter = parameter, .layers = {layers.begin(), layers.end()}, .lora = t});
  return t;
}

void LayerBuilder::share_residual_gradient(std::initializer_list<TensorId> tensors) {
  for (const TensorId t : tensors) layer_.residual.add(t);
}

Layer LayerBuilder::finish(TensorId output) {
  layer_.output = output;
  check(layer_.residual.has(output), "the result of a layer is a sum on the residual stream");
  require_order(layer_);
  return std::move(layer_);
}

void require_order(const Layer& layer) {
  TensorSet written{layer.input};
  for (const auto& stage : layer.stages) {
    check((written & stage->writes).empty(), "a tensor has two writers");
    check((stage->reads - written).empty(), "a stage reads a tensor that nobody wrote");
    written = written | stage->writes;
  }
}

}  // namespace qtrain
