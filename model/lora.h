#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

namespace qtrain {

/// A LoRA adapter as PEFT's LoraConfig describes it.
struct LoraConfig {
  static constexpr std::int64_t kMostRank = 65536;

  std::int64_t r = 8;
  double alpha = 8;
  double dropout = 0;
  bool rslora = false;
  /// Names of linear layers; {"all-linear"} for all but the head. One entry with regex characters is matched against
  /// the whole module name, as PEFT does with a string.
  std::vector<std::string> targets = {"q_proj", "v_proj"};
  /// Other ranks and alphas for some modules: the first entry whose regular expression matches the end of a module's
  /// name, from its beginning or from a dot on, as in PEFT.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  std::string base_model = {};

  std::int64_t rank_of(std::string_view module) const;
  /// alpha / rank, or alpha / sqrt(rank) with rsLoRA.
  double scale_of(std::string_view module) const;
  /// The highest rank that any module can have.
  std::int64_t largest_rank() const;
};

/// Linear layers of a decoder block in file order, without the layer: "self_attn.q_proj", ...
inline constexpr std::string_view kLinearNames[] = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",
};

/// Whether the module "model.layers.3.self_attn.q_proj" is a target.
bool is_target(const LoraConfig& lora, std::string_view module);

/// adapter_config.json of PEFT. What is not plain LoRA on linear layers (DoRA, rank_pattern, modules_to_save, bias,
/// ...) is an input error naming the key.
LoraConfig parse_lora_config(const Json& json, const std::string& name);
LoraConfig load_lora_config(const std::filesystem::path& folder);
/// As PEFT writes it: sorted keys.
Json lora_config_json(const LoraConfig& lora);

}  // namespace qtrain
