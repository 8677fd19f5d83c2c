#include "model/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace qtrain {
namespace {

bool is_empty(const Json& v) {
  return v.is_null() || v == false || (v.is_string() && v == "none") || ((v.is_object() || v.is_array()) && v.empty());
}

[[noreturn]] void refuse(const std::string& name, const std::string& cause, const std::string& remedy = {}) {
  fail(ErrorKind::input, {.cause = cause, .place = name, .remedy = remedy});
}

void refuse_variants(const Json& json, const std::string& name) {
  for (const char* key : {"use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform", "bias",
                          "fan_in_fan_out", "lora_bias", "target_parameters", "exclude_modules", "trainable_token_indices",
                          "alora_invocation_tokens", "use_qalora", "layer_replication"})
    if (json.contains(key) && !is_empty(json[key]))
      refuse(name, fmt::format("\"{}\" is not supported in an adapter", key), "only plain LoRA on linear layers is");
}

double number(const Json& json, const char* key, double otherwise, const std::string& name) {
  if (!json.contains(key) || json[key].is_null()) return otherwise;
  if (!json[key].is_number()) refuse(name, fmt::format("\"{}\" must be a number", key));
  return json[key].get<double>();
}

std::vector<std::string> read_targets(const Json& json, const std::string& name) {
  if (!json.contains("target_modules")) refuse(name, "\"target_modules\" is missing");
  const Json& v = json["target_modules"];
  if (v.is_string()) return {v.get<std::string>()};
  if (!v.is_array()) refuse(name, "\"target_modules\" must be a list of names or a string");
  std::vector<std::string> targets;
  for (const Json& t : v) {
    if (!t.is_string()) refuse(name, "\"target_modules\" must hold names");
    targets.push_back(t.get<std::string>());
  }
  return targets;
}

}  // namespace

double LoraConfig::scale() const {
  const auto rank = static_cast<double>(r);
  return alpha / (rslora ? std::sqrt(rank) : rank);
}

bool is_target(const LoraConfig& lora, std::string_view module) {
  if (lora.targets.size() == 1) {
    const std::string& only = lora.targets.front();
    if (only == "all-linear") return true;
    if (only.find_first_of("*()[]|\\^$+?{") != std::string::npos) {
      try {
        return std::regex_match(module.begin(), module.end(), std::regex(only));
      } catch (const std::regex_error&) {
        fail(ErrorKind::usage, {.cause = "target_modules \"" + only + "\" is not a valid regular expression"});
      }
    }
  }
  return std::any_of(lora.targets.begin(), lora.targets.end(), [&](const std::string& t) {
    return module == t || (module.ends_with(t) && module[module.size() - t.size() - 1] == '.');
  });
}

LoraConfig parse_lora_config(const Json& json, const std::string& name) {
  if (!json.is_object()) refuse(name, "an adapter config must be a JSON object");
  if (json.value("peft_type", "LORA") != "LORA")
    refuse(name, fmt::format("peft_type {} is not supported", json["peft_type"].dump()), "supported: LORA");
  refuse_variants(json, name);
  LoraConfig lora;
  const double rank = number(json, "r", 8, name);
  if (rank < 1 || rank != std::floor(rank) || rank > 65536) refuse(name, "\"r\" must be a positive integer");
  lora.r = static_cast<std::int64_t>(rank);
  lora.alpha = number(json, "lora_alpha", 8, name);
  lora.dropout = number(json, "lora_dropout", 0, name);
  if (lora.dropout < 0 || lora.dropout >= 1) refuse(name, "\"lora_dropout\" must be in [0, 1)");
  lora.rslora = json.contains("use_rslora") && json["use_rslora"] == true;
  lora.targets = read_targets(json, name);
  if (json.contains("base_model_name_or_path") && json["base_model_name_or_path"].is_string())
    lora.base_model = json["base_model_name_or_path"].get<std::string>();
  return lora;
}

LoraConfig load_lora_config(const std::filesystem::path& folder) {
  const auto file = folder / "adapter_config.json";
  if (!exists(file))
    fail(ErrorKind::input, {.cause = "no adapter_config.json", .place = folder.string(),
                            .remedy = "name a folder that PEFT or qtrain wrote"});
  return parse_lora_config(read_json(file), file.string());
}

Json lora_config_json(const LoraConfig& lora) {
  std::vector<std::string> targets = lora.targets;
  std::sort(targets.begin(), targets.end());
  Json modules = targets;
  return {{"alpha_pattern", Json::object()}, {"base_model_name_or_path", lora.base_model}, {"bias", "none"},
          {"fan_in_fan_out", false},         {"inference_mode", true},                     {"init_lora_weights", true},
          {"lora_alpha", lora.alpha},        {"lora_dropout", lora.dropout},               {"modules_to_save", nullptr},
          {"peft_type", "LORA"},             {"r", lora.r},                                {"rank_pattern", Json::object()},
          {"target_modules", modules},       {"task_type", "CAUSAL_LM"},                   {"use_dora", false},
          {"use_rslora", lora.rslora}};
}

}  // namespace qtrain
