#include "model/families/family.h"

#include <fmt/format.h>

#include <algorithm>

namespace qtrain {

extern const Family kLlama, kMistral, kQwen2, kQwen3, kSmolLm3, kOlmo2, kGranite, kGemma2, kGemma3, kPhi3, kQwen3Moe,
    kMixtral, kGptOss, kQwen2Moe, kOlmo3, kExaone4, kMinistral, kMinistral3, kHunyuanDense, kOlmoe;

std::span<const Family* const> families() {
  static constexpr const Family* kAll[] = {&kLlama,    &kMistral,   &kQwen2,      &kQwen3,        &kSmolLm3,
                                           &kOlmo2,    &kGranite,   &kGemma2,     &kGemma3,       &kPhi3,
                                           &kQwen3Moe, &kMixtral,   &kGptOss,     &kQwen2Moe,     &kOlmo3,
                                           &kExaone4,  &kMinistral, &kMinistral3, &kHunyuanDense, &kOlmoe};
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
      if (linear.kind == LinearKind::plain) modules.push_back(fmt::format("model.layers.{}.{}", l, linear.module));
  return modules;
}

std::vector<std::string> expert_modules(const ModelConfig& config) {
  std::vector<std::string> modules;
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const Layer layer = config.family->layer(config, l);
    for (const LinearSpec& linear : layer.linears)
      if (linear.kind == LinearKind::router) modules.push_back(fmt::format("model.layers.{}.{}", l, linear.module));
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
      if (linear.kind == LinearKind::router)
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

std::optional<std::vector<bool>> sliding_layer_types(const ConfigReader& fields, const ModelConfig& config) {
  const Json* types = fields.get("layer_types");
  if (!types) return {};
  if (!types->is_array() || types->size() != config.attention.size())
    fields.refuse("\"layer_types\" must be a list with \"num_hidden_layers\" entries");
  std::vector<bool> slides;
  for (const Json& entry : *types) {
    const std::string type = entry.is_string() ? entry.get<std::string>() : entry.dump();
    if (type != "sliding_attention" && type != "full_attention")
      fields.refuse(fmt::format("\"layer_types\" entry {} is not supported", type),
                    "supported: full_attention, sliding_attention");
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

void set_windows(const ConfigReader& fields, ModelConfig& config, std::int64_t window, std::int64_t first) {
  const auto slides = sliding_layer_types(fields, config);
  for (std::size_t l = 0; l < config.attention.size(); ++l)
    config.attention[l].window = (slides ? (*slides)[l] : static_cast<std::int64_t>(l) >= first) ? window : 0;
}

std::vector<bool> set_windows_but_every(std::int64_t full, const ConfigReader& fields, ModelConfig& config) {
  std::vector<bool> slides;
  for (std::int64_t l = 1; l <= config.layers; ++l) slides.push_back(l % full != 0);
  slides = sliding_layer_types(fields, config).value_or(slides);
  const std::int64_t window = read_window(fields, kUsualWindow);
  for (std::size_t l = 0; l < slides.size(); ++l) config.attention[l].window = slides[l] ? window : 0;
  return slides;
}

std::int64_t read_window(const ConfigReader& fields, std::int64_t otherwise) {
  const bool none = fields.json.contains("sliding_window") && !fields.get("sliding_window");
  return none ? 0 : fields.positive("sliding_window", otherwise);
}

std::vector<bool> sparse_layers(const ConfigReader& r, const ModelConfig& c) {
  const std::int64_t step = r.positive("decoder_sparse_step", 1);
  std::vector<bool> layers;
  for (std::int64_t l = 0; l < c.layers; ++l) layers.push_back((l + 1) % step == 0);
  const Json* dense = r.get("mlp_only_layers");
  if (!dense) return layers;
  if (!dense->is_array()) r.refuse("\"mlp_only_layers\" must be a list of layers");
  for (const Json& layer : *dense) {
    if (!layer.is_number_integer()) r.refuse("\"mlp_only_layers\" must hold numbers of layers");
    if (layer >= 0 && layer < c.layers) layers[layer.get<std::size_t>()] = false;
  }
  return layers;
}

void set_experts(const ConfigReader& r, ModelConfig& c, ExpertsConfig e) {
  if (r.number("router_jitter_noise", 0) != 0)
    r.refuse("\"router_jitter_noise\" other than 0 is not supported", "set it to 0.0 in config.json");
  constexpr double kMaxElements = 1e15;
  if (static_cast<double>(e.count) * static_cast<double>(e.intermediate_size) * static_cast<double>(c.hidden_size) >
      kMaxElements)
    r.refuse("the width of the experts is out of range");
  if (e.count > ops::kMaxExperts || e.per_token > std::min(e.count, ops::kMaxChoices))
    r.refuse("the number of experts or \"num_experts_per_tok\" is out of range");
  e.balance_coefficient = r.number("router_aux_loss_coef", 0.001);
  e.is_balanced = r.flag("output_router_logits", false);
  c.experts = std::move(e);
}

}  // namespace qtrain
