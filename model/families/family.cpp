#include "model/families/family.h"

#include <fmt/format.h>

#include <algorithm>

namespace qtrain {

extern const Family kLlama, kMistral, kQwen2, kQwen3, kGemma2, kQwen3Moe, kPhi3, kGptOss;

std::span<const Family* const> families() {
  static constexpr const Family* kAll[] = {&kLlama,  &kMistral,  &kQwen2, &kQwen3,
                                           &kGemma2, &kQwen3Moe, &kPhi3,  &kGptOss};
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

void require_expert_sizes(const ConfigReader& fields, const ModelConfig& config, const ExpertsConfig& e) {
  constexpr double kMostElements = 1e15;
  if (static_cast<double>(e.count) * static_cast<double>(e.intermediate_size) *
          static_cast<double>(config.hidden_size) >
      kMostElements)
    fields.refuse("the size of experts (\"moe_intermediate_size\", \"intermediate_size\") is out of range");
  if (e.count > ops::kMostExperts || e.per_token > std::min(e.count, ops::kMostChoices))
    fields.refuse("\"num_experts\" or \"num_experts_per_tok\" is out of range");
}

}  // namespace qtrain
