#include "model/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/config_reader.h"
#include "model/model_config.h"
#include "model/module_pattern.h"

namespace qtrain {
namespace {

bool is_empty(const Json& v) {
  return v.is_null() || (v.is_boolean() && !v.get<bool>()) || (v.is_string() && v.get<std::string>() == "none") ||
         ((v.is_object() || v.is_array()) && v.empty());
}

void refuse_variants(const ConfigReader& r) {
  constexpr const char* kRemedy = "only LoRA and DoRA are supported";
  for (const char* key : {"bias", "fan_in_fan_out", "lora_bias", "trainable_token_indices", "alora_invocation_tokens",
                          "use_qalora", "use_bdlora", "layer_replication", "arrow_config", "megatron_config",
                          "monteclora_config", "velora_config", "kasa_config"})
    if (r.get(key) && !is_empty(*r.get(key)))
      r.refuse(fmt::format("\"{}\" is not supported in an adapter", key), kRemedy);
  const Json* init = r.get("init_lora_weights");
  if (!init || !init->is_string()) return;
  // Other initializations (PiSSA, OLoRA, CorDA, LoftQ, ...) also change the weights of the base model.
  const auto way = init->get<std::string>();
  if (way != "gaussian" && way != "eva" && way != "orthogonal")
    r.refuse(fmt::format("\"init_lora_weights\" \"{}\" is not supported", way), kRemedy);
}

std::vector<std::string> read_names(const ConfigReader& r, const char* key) {
  const Json& v = *r.get(key);
  if (!v.is_array()) r.refuse(fmt::format("\"{}\" must be a list of names", key));
  std::vector<std::string> names;
  for (const Json& name : v) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty())
      r.refuse(fmt::format("\"{}\" must hold names", key));
    names.push_back(name.get<std::string>());
  }
  return names;
}

// One name, or a list of them.
std::vector<std::string> read_name_or_names(const ConfigReader& r, const char* key) {
  const Json& v = *r.get(key);
  return v.is_string() ? std::vector{v.get<std::string>()} : read_names(r, key);
}

std::vector<std::string> read_targets(const ConfigReader& r) {
  if (r.get("target_modules")) return read_name_or_names(r, "target_modules");
  if (!r.get("target_parameters")) r.refuse("\"target_modules\" is missing");
  return {};
}

bool is_given(const ConfigReader& r, const char* key) {
  return r.get(key) && !is_empty(*r.get(key));
}

void read_exclusions(const ConfigReader& r, LoraConfig& lora) {
  if (!is_given(r, "exclude_modules")) return;
  if (r.get("exclude_modules")->is_string())
    lora.exclude_pattern = r.text("exclude_modules", "");
  else
    lora.exclude_modules = read_names(r, "exclude_modules");
}

// Refuses the same combinations as PEFT.
void read_layers(const ConfigReader& r, LoraConfig& lora) {
  constexpr const char *kLayers = "layers_to_transform", *kPattern = "layers_pattern";
  if (is_given(r, kPattern)) {
    lora.layers_pattern = read_name_or_names(r, kPattern);
    if (!r.get(kLayers)) r.refuse("\"layers_pattern\" requires \"layers_to_transform\"");
  }
  const Json* layers = r.get(kLayers);
  if (!layers) return;
  if (r.get("target_modules") && r.get("target_modules")->is_string())
    r.refuse("\"layers_to_transform\" cannot be combined with a pattern in \"target_modules\"",
             "name the layers in the pattern");
  for (const Json& layer : layers->is_array() ? *layers : Json::array({*layers})) {
    if (!layer.is_number_integer()) r.refuse("\"layers_to_transform\" must be the number of a layer or a list of them");
    lora.layers_to_transform.push_back(layer.get<std::int64_t>());
  }
}

// Only parameters of mixtures of experts are supported.
std::vector<std::string> read_parameters(const ConfigReader& r) {
  constexpr const char* kParameters[] = {"gate.weight", "router.weight", "gate_up_proj", "down_proj"};
  std::vector<std::string> names = read_names(r, "target_parameters");
  for (const std::string& name : names)
    if (std::ranges::none_of(kParameters, [&](const char* known) { return name.ends_with(known); }))
      r.refuse(fmt::format("\"target_parameters\" \"{}\" is not supported", name),
               "supported: gate.weight, router.weight, gate_up_proj and down_proj of mixtures of experts");
  return names;
}

constexpr std::string_view kAllLinear = "all-linear";

bool is_pattern(const std::vector<std::string>& targets) {
  return targets.size() == 1 && is_module_pattern(targets.front());
}

// Writes integral values without a fraction: PEFT declares lora_alpha as an int.
Json number_json(double v) {
  const auto whole = static_cast<std::int64_t>(v);
  return static_cast<double>(whole) == v ? Json(whole) : Json(v);
}

template <class T>
using Pattern = std::vector<std::pair<std::string, T>>;

template <class T>
T find_pattern(const Pattern<T>& pattern, std::string_view module, T otherwise) {
  for (const auto& [key, value] : pattern)
    if (matches_whole("(.*\\.)?(" + key + ")", module)) return value;
  return otherwise;
}

template <class T>
Pattern<T> read_pattern(const ConfigReader& r, const char* key) {
  Pattern<T> pattern;
  const Json* object = r.get(key);
  if (!object) return pattern;
  if (!object->is_object()) r.refuse(fmt::format("\"{}\" must be an object of module names", key));
  for (const auto& [module, v] : object->items()) {
    const bool fits = std::is_integral_v<T> ? v.is_number_integer() && v <= LoraConfig::kMaxRank : v.is_number();
    if (!fits || v <= 0) r.refuse(fmt::format("\"{}\" of \"{}\" is {}", key, module, v.dump()));
    pattern.emplace_back(module, v.template get<T>());
  }
  return pattern;
}

template <class T>
Json pattern_json(const Pattern<T>& pattern) {
  Json out = Json::object();
  for (const auto& [key, value] : pattern) out[key] = number_json(static_cast<double>(value));
  return out;
}

bool is_meant(const std::vector<std::string>& names, std::string_view module) {
  return std::ranges::any_of(names, [&](const std::string& name) { return means_module(name, module); });
}

bool is_excluded(const LoraConfig& lora, std::string_view module) {
  if (!lora.exclude_pattern.empty()) return matches_whole(lora.exclude_pattern, module);
  return is_meant(lora.exclude_modules, module);
}

// The patterns are PEFT's. They are lazy, so that they find the number of the layer rather than that of an expert in
// it.
bool is_in_layers(const LoraConfig& lora, std::string_view module) {
  if (lora.layers_to_transform.empty()) return true;
  constexpr std::string_view kNumber = "\\.(?P<idx>\\d+)\\.";
  std::optional<std::int64_t> layer;
  if (lora.layers_pattern.empty()) layer = number_in(fmt::format(".*?\\.[^.]*{}", kNumber), module);
  for (const std::string& pattern : lora.layers_pattern)
    if (!layer) layer = number_in(fmt::format("(?:^|.*?\\.){}{}", pattern, kNumber), module);
  return layer && std::ranges::find(lora.layers_to_transform, *layer) != lora.layers_to_transform.end();
}

Json names_json(const std::vector<std::string>& names) {
  return names.empty() ? Json() : Json(names);
}

// As PEFT writes it: a pattern is a string, since a list holds only names.
Json targets_json(const std::vector<std::string>& targets, const std::vector<std::string>& linear_names) {
  return is_pattern(targets) ? Json(targets.front()) : Json(expanded_targets(targets, linear_names));
}

}  // namespace

std::int64_t LoraConfig::rank_of(std::string_view module) const {
  return find_pattern(rank_pattern, module, r);
}

double LoraConfig::scale_of(std::string_view module) const {
  const auto rank = static_cast<double>(rank_of(module));
  return find_pattern(alpha_pattern, module, alpha) / (rslora ? std::sqrt(rank) : rank);
}

bool is_linear_layer(std::string_view module) {
  const bool linear = module.ends_with("_proj") || module.ends_with(".shared_expert_gate");
  return linear && module.find("layers.") != std::string_view::npos;
}

bool is_saved(const LoraConfig& lora, std::string_view module) {
  const auto& ends = lora.modules_to_save;
  return std::any_of(ends.begin(), ends.end(), [&](const std::string& end) { return module.ends_with(end); });
}

std::optional<std::string> saved_around(const LoraConfig& lora, std::string_view module) {
  for (std::size_t dot = module.rfind('.'); dot != std::string_view::npos; dot = module.rfind('.', dot - 1)) {
    for (const std::string& end : lora.modules_to_save)
      if (module.substr(0, dot).ends_with(end)) return end;
    if (dot == 0) break;
  }
  return {};
}

bool is_module_pattern(std::string_view target) {
  return target.find_first_of("*()[]|\\^$+?{") != std::string_view::npos;
}

bool means_module(std::string_view target, std::string_view module) {
  if (target == kAllLinear) return is_linear_layer(module);
  return module == target || (module.ends_with(target) && module[module.size() - target.size() - 1] == '.');
}

bool names_parameter(const LoraConfig& lora, std::string_view parameter) {
  return is_meant(lora.target_parameters, parameter);
}

bool is_target(const LoraConfig& lora, std::string_view module) {
  if (is_saved(lora, module) || is_excluded(lora, module)) return false;
  if (is_pattern(lora.targets)) return matches_whole(lora.targets.front(), module);
  if (std::ranges::find(lora.targets, module) != lora.targets.end()) return true;
  return is_meant(lora.targets, module) && is_in_layers(lora, module);
}

LoraConfig with_experts(LoraConfig lora, const ExpertNames& experts) {
  if (is_pattern(lora.targets)) return lora;
  constexpr std::string_view kGateUp = "gate_up_proj";
  const std::pair<std::string, std::string_view> parameters[] = {
      {"gate", "gate.weight"}, {experts.gate, kGateUp}, {experts.up, kGateUp}, {experts.down, "down_proj"}};
  std::vector<std::string> targets =
      expanded_targets(lora.targets, {"q_proj", "k_proj", "v_proj", "o_proj", experts.gate, experts.up, experts.down});
  if (std::ranges::find(lora.targets, kAllLinear) != lora.targets.end()) targets.emplace_back("gate");
  lora.targets.clear();
  bool gate = false, up = false;
  for (const std::string& target : targets) {
    const auto* known = std::ranges::find_if(
        parameters, [&](const auto& entry) { return target == entry.first || target.ends_with("." + entry.first); });
    if (known == std::end(parameters)) {
      lora.targets.push_back(target);
      continue;
    }
    gate = gate || known->first == experts.gate;
    up = up || known->first == experts.up;
    if (std::ranges::find(lora.target_parameters, known->second) == lora.target_parameters.end())
      lora.target_parameters.emplace_back(known->second);
  }
  if (gate != up)
    fail(ErrorKind::usage,
         {.cause = fmt::format(
              "lora_target_modules names only one of {} and {}, which are a single parameter of the experts",
              experts.gate, experts.up),
          .remedy = "name both or neither"});
  if (gate) {
    const std::string both = ".*\\." + std::string(kGateUp);
    lora.rank_pattern.emplace_back(both, 2 * lora.r);
    lora.alpha_pattern.emplace_back(both, 2 * lora.alpha);
  }
  return lora;
}

LoraConfig for_model(LoraConfig lora, const ModelConfig& model) {
  return model.experts && model.experts->named_apart ? with_experts(std::move(lora), model.experts->names) : lora;
}

void require_expert_parameters(const LoraConfig& lora, const ModelConfig& model, const std::filesystem::path& adapter) {
  if (!model.experts || !model.experts->named_apart || !lora.target_parameters.empty()) return;
  if (with_experts(lora, model.experts->names).target_parameters.empty()) return;
  fail(ErrorKind::input, {.cause = "target_modules names routers or experts, which PEFT adapts as target_parameters",
                          .place = (adapter / "adapter_config.json").string(),
                          .remedy = "load and save the adapter with a PEFT version that supports transformers 5"});
}

std::vector<std::string> common_linear_names() {
  return {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
}

std::vector<std::string> expanded_targets(const std::vector<std::string>& targets,
                                          const std::vector<std::string>& linear_names) {
  std::vector<std::string> names;
  for (const std::string& target : targets) {
    if (target != kAllLinear) names.push_back(target);
    if (target == kAllLinear) names.insert(names.end(), linear_names.begin(), linear_names.end());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

LoraConfig parse_lora_config(const Json& json, const std::string& name) {
  const ConfigReader r{json, name};
  if (!json.is_object()) r.refuse("an adapter config must be a JSON object");
  if (const std::string type = r.text("peft_type", "LORA"); type != "LORA")
    r.refuse(fmt::format("\"peft_type\" \"{}\" is not supported", type), "supported: LORA");
  refuse_variants(r);
  LoraConfig lora;
  lora.r = r.positive("r", 8);
  if (lora.r > LoraConfig::kMaxRank) r.refuse(fmt::format("\"r\" is out of range: {}", lora.r));
  lora.alpha = r.number("lora_alpha", 8);
  lora.dropout = r.number("lora_dropout", 0);
  if (!(lora.dropout >= 0 && lora.dropout < 1)) r.refuse("\"lora_dropout\" must be in [0, 1)");
  lora.rslora = r.flag("use_rslora", false);
  lora.dora = r.flag("use_dora", false);
  lora.targets = read_targets(r);
  if (is_given(r, "target_parameters")) lora.target_parameters = read_parameters(r);
  read_exclusions(r, lora);
  read_layers(r, lora);
  lora.rank_pattern = read_pattern<std::int64_t>(r, "rank_pattern");
  lora.alpha_pattern = read_pattern<double>(r, "alpha_pattern");
  if (r.get("modules_to_save")) lora.modules_to_save = read_names(r, "modules_to_save");
  lora.ensure_weight_tying = r.flag("ensure_weight_tying", false);
  lora.base_model = r.text("base_model_name_or_path", "");
  lora.base_revision = r.text("revision", "");
  return lora;
}

LoraConfig load_lora_config(const std::filesystem::path& folder) {
  const auto file = folder / "adapter_config.json";
  if (!exists(folder))
    fail(ErrorKind::input, {.cause = "no such adapter folder",
                            .place = folder.string(),
                            .remedy = "name an adapter folder, or an adapter of the hub as OWNER/NAME"});
  if (!exists(file))
    fail(ErrorKind::input, {.cause = "no adapter_config.json",
                            .place = folder.string(),
                            .remedy = "name a folder that was written by PEFT or qtrain, not a file in it"});
  return parse_lora_config(read_json(file), file.string());
}

LoraConfig in_files(LoraConfig lora) {
  if (!lora.init.changes_base()) return lora;
  const double of_alpha = lora.rslora ? std::sqrt(2.0) : 2;
  lora.r *= 2;
  lora.alpha *= of_alpha;
  for (auto& [module, rank] : lora.rank_pattern) rank *= 2;
  for (auto& [module, alpha] : lora.alpha_pattern) alpha *= of_alpha;
  lora.init = {};
  return lora;
}

Json lora_config_json(const LoraConfig& lora, const std::vector<std::string>& linear_names) {
  Json config{
      {"alpha_pattern", pattern_json(lora.alpha_pattern)},
      {"base_model_name_or_path", lora.base_model},
      {"bias", "none"},
      {"ensure_weight_tying", lora.ensure_weight_tying},
      {"exclude_modules", lora.exclude_pattern.empty() ? names_json(lora.exclude_modules) : Json(lora.exclude_pattern)},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", lora.init.reads_base() ? Json(true) : lora.init.json()},
      {"layers_pattern", names_json(lora.layers_pattern)},
      {"layers_to_transform", lora.layers_to_transform.empty() ? Json() : Json(lora.layers_to_transform)},
      {"lora_alpha", number_json(lora.alpha)},
      {"lora_dropout", lora.dropout},
      {"modules_to_save", names_json(lora.modules_to_save)},
      {"peft_type", "LORA"},
      {"r", lora.r},
      {"rank_pattern", pattern_json(lora.rank_pattern)},
      {"target_modules", targets_json(lora.targets, linear_names)},
      {"target_parameters", names_json(lora.target_parameters)},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", lora.dora},
      {"use_rslora", lora.rslora}};
  if (!lora.base_revision.empty()) config["revision"] = lora.base_revision;
  return config;
}

}  // namespace qtrain
