#include "model/families/family.h"

#include <fmt/format.h>

#include <algorithm>

namespace qtrain {

extern const Family kLlama, kMistral, kQwen2, kQwen3, kGemma2, kQwen3Moe;

std::span<const Family* const> families() {
  static constexpr const Family* kAll[] = {&kLlama, &kMistral, &kQwen2, &kQwen3, &kGemma2, &kQwen3Moe};
  return kAll;
}

std::vector<Layer> make_layers(const ModelConfig& config) {
  std::vector<Layer> layers;
  for (std::int64_t l = 0; l < config.layers; ++l) layers.push_back(config.family->layer(config, l));
  return layers;
}

std::vector<std::string> linear_modules(const ModelConfig& config) {
  std::vector<std::string> modules;
  for (std::int64_t l = 0; l < config.layers; ++l)
    for (const LinearSpec& linear : config.family->layer(config, l).linears)
      if (linear.adaptable == Adaptable::yes) modules.push_back(fmt::format("model.layers.{}.{}", l, linear.module));
  return modules;
}

std::vector<std::string> expert_modules(const ModelConfig& config) {
  std::vector<std::string> modules;
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const Layer layer = config.family->layer(config, l);
    for (const LinearSpec& linear : layer.linears)
      if (linear.adaptable == Adaptable::no) modules.push_back(fmt::format("model.layers.{}.{}", l, linear.module));
    for (const ExpertsSpec& e : layer.experts)
      modules.push_back(fmt::format("model.layers.{}.{}.{}", l, e.module, e.part));
  }
  return modules;
}

std::vector<std::string> expert_parameters(const ModelConfig& config) {
  std::vector<std::string> parameters;
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const Layer layer = config.family->layer(config, l);
    for (const LinearSpec& linear : layer.linears)
      if (linear.adaptable == Adaptable::no)
        parameters.push_back(fmt::format("model.layers.{}.{}.weight", l, linear.module));
    for (const ExpertsGroup& group : layer.expert_groups)
      parameters.push_back(fmt::format("model.layers.{}.{}", l, group.parameter));
  }
  return parameters;
}

std::vector<std::string> linear_names(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const std::string& module : linear_modules(config))
    if (std::string name = module.substr(module.rfind('.') + 1); std::ranges::find(names, name) == names.end())
      names.push_back(std::move(name));
  return names;
}

void set_windows(const ConfigReader& fields, ModelConfig& config, std::int64_t window, std::int64_t first) {
  for (std::int64_t l = first; l < config.layers; ++l) config.attention[static_cast<std::size_t>(l)].window = window;
  const Json* types = fields.get("layer_types");
  if (!types) return;
  if (!types->is_array() || types->size() != config.attention.size())
    fields.refuse("\"layer_types\" must be a list with one entry for each of \"num_hidden_layers\"");
  for (std::size_t l = 0; l < config.attention.size(); ++l) {
    const Json& entry = (*types)[l];
    const std::string type = entry.is_string() ? entry.get<std::string>() : entry.dump();
    if (type != "sliding_attention" && type != "full_attention")
      fields.refuse(fmt::format("\"layer_types\" entry {} is not supported", type),
                    "supported: full_attention, sliding_attention");
    config.attention[l].window = type == "sliding_attention" ? window : 0;
  }
}

}  // namespace qtrain
