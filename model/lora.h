#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "model/weight_names.h"

namespace qtrain {

struct ExpertNames;
struct ModelConfig;

/// A LoRA adapter (Hu et al. 2021; rsLoRA: Kalajdzievski 2023) as PEFT's LoraConfig describes it.
struct LoraConfig {
  static constexpr std::int64_t kMaxRank = 65536;

  std::int64_t r = 8;
  double alpha = 8;
  double dropout = 0;
  bool rslora = false;
  bool dora = false;  ///< a magnitude for each output of a layer; its norms are constants for gradients
  /// Names of layers or their ends; "all-linear", alone or among them, for all linear ones but the head. A single entry
  /// with regex characters is matched against the whole module name, as PEFT does with a string.
  std::vector<std::string> targets = {"q_proj", "v_proj"};
  /// Modules without an adapter though they are targets: names or their ends, and a regular expression of whole names.
  std::vector<std::string> exclude_modules = {};
  std::string exclude_pattern = {};
  /// The layers whose targets have an adapter; empty: all. A target that is named whole has one in any case. The number
  /// of a layer follows a match of layers_pattern in the module's name; without one, the first number there is it.
  std::vector<std::int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  /// Names of parameters, or their ends, that have an adapter without being linear layers: routers ("gate.weight") and
  /// experts ("gate_up_proj", "down_proj").
  std::vector<std::string> target_parameters = {};
  /// Other ranks and alphas for some modules: the first entry whose regular expression matches the end of a module's
  /// name, from its beginning or from a dot on, as in PEFT.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  /// Ends of the names of modules that are trained whole beside the adapter, as in PEFT: "embed_tokens", "lm_head".
  std::vector<std::string> modules_to_save = {};
  /// Whether modules_to_save trains a tied head and embedding as the one weight that they are, not each for itself.
  bool ensure_weight_tying = false;
  std::string base_model = {};

  std::int64_t rank_of(std::string_view module) const;
  /// alpha / rank, or alpha / sqrt(rank) with rsLoRA.
  double scale_of(std::string_view module) const;
};

/// Whether a module is a linear layer of a decoder layer by its name ("model.layers.0.self_attn.q_proj", also without
/// "model."): those of transformers end in _proj.
bool is_linear_layer(std::string_view module);
/// Whether the module "model.layers.3.self_attn.q_proj" is a target; one that is excluded or trained whole is none.
bool is_target(const LoraConfig& lora, std::string_view module);
/// Whether an entry of a list of several targets means the module: its name, the end of it from a dot on, or
/// "all-linear". Regular expressions are none there.
bool means_module(std::string_view target, std::string_view module);
/// Whether target_parameters names a parameter ("model.layers.0.mlp.experts.gate_up_proj") or an end of it.
bool names_parameter(const LoraConfig& lora, std::string_view parameter);
/// Whether a target has characters of regular expressions.
bool is_module_pattern(std::string_view target);
/// The adapter on a mixture of experts, as PEFT changes it where transformers holds experts and routers as parameters:
/// "gate", and the names of the experts' matrices among the targets, and all of them with "all-linear", become
/// target_parameters; rank and alpha of the two that are one parameter (gate and up) double. A usage error where only
/// one of those two is named.
LoraConfig with_experts(LoraConfig lora, const ExpertNames& experts);
/// The same where a model has experts.
LoraConfig for_model(LoraConfig lora, const ModelConfig& model);
/// ErrorKind::input for an adapter of transformers 4, which has factors for the layers of each expert: these are
/// parameters since.
void require_expert_parameters(const LoraConfig& lora, const ModelConfig& model, const std::filesystem::path& adapter);
/// The linear layers of a decoder layer in most families.
std::vector<std::string> common_linear_names();
/// Targets as adapter_config.json has them: "all-linear" as the names it stands for, those of the model's linear
/// layers; sorted, each once.
std::vector<std::string> expanded_targets(const std::vector<std::string>& targets,
                                          const std::vector<std::string>& linear_names = common_linear_names());
/// Whether modules_to_save names it.
bool is_saved(const LoraConfig& lora, std::string_view module);

/// adapter_config.json of PEFT. What is not here (bias, layer_replication, ...) is an input error naming the key.
LoraConfig parse_lora_config(const Json& json, const std::string& name);
LoraConfig load_lora_config(const std::filesystem::path& folder);
/// As PEFT writes it: sorted keys. `linear_names` as in expanded_targets.
Json lora_config_json(const LoraConfig& lora, const std::vector<std::string>& linear_names = common_linear_names());

}  // namespace qtrain
