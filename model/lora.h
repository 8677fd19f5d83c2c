#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/json.h"
#include "model/lora_init.h"
#include "model/module_names.h"

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
  bool dora = false;  ///< learns a magnitude per output of a layer (DoRA); gradients treat the norms as constants
  /// Names of layers or suffixes of names; "all-linear", alone or among them, means all linear layers except the head.
  /// A single entry with regex characters is matched against the whole module name, as PEFT does with a string.
  std::vector<std::string> targets = {"q_proj", "v_proj"};
  /// Modules excluded from the targets: names or suffixes, and a regular expression for whole names.
  std::vector<std::string> exclude_modules = {};
  std::string exclude_pattern = {};
  /// The layers whose targets are adapted; empty: all. A target given by its full name is adapted in any layer. A
  /// layer's number is the one after a match of layers_pattern in the module name; without a pattern, the first number
  /// in the name.
  std::vector<std::int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  /// Names of adapted parameters that are not linear layers, or suffixes of names: routers ("gate.weight") and experts
  /// ("gate_up_proj", "down_proj").
  std::vector<std::string> target_parameters = {};
  /// Ranks and alphas that differ for some modules: the first entry applies whose regular expression matches the end of
  /// the module name, starting at its beginning or after a dot, as in PEFT.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  /// Suffixes of the names of modules that are trained whole along with the adapter, as in PEFT: "embed_tokens",
  /// "lm_head".
  std::vector<std::string> modules_to_save = {};
  /// Whether modules_to_save trains a tied head and embedding as one weight instead of untying them.
  bool ensure_weight_tying = false;
  LoraInit init = {};  ///< of a new adapter; adapter files do not say how theirs began
  std::string base_model = {};
  std::string base_revision = {};  ///< the commit of base_model on the hub; empty: unknown, or a folder

  std::int64_t rank_of(std::string_view module) const;
  /// alpha / rank, or alpha / sqrt(rank) with rsLoRA.
  double scale_of(std::string_view module) const;
};

/// Whether a module is a linear layer of a decoder layer, by its name ("model.layers.0.self_attn.q_proj", "model."
/// being optional): transformers names them with the suffix _proj, except the gate of a shared expert.
bool is_linear_layer(std::string_view module);
/// Whether the module "model.layers.3.self_attn.q_proj" is a target; excluded modules and those trained whole are not.
bool is_target(const LoraConfig& lora, std::string_view module);
/// Whether an entry of a list of several targets selects the module: as its name, a suffix after a dot, or
/// "all-linear". Regular expressions are not supported there.
bool means_module(std::string_view target, std::string_view module);
/// Whether target_parameters names a parameter ("model.layers.0.mlp.experts.gate_up_proj") or a suffix of it.
bool names_parameter(const LoraConfig& lora, std::string_view parameter);
/// Whether a target contains regex characters.
bool is_module_pattern(std::string_view target);
/// The adapter config as PEFT changes it for a mixture of experts, where transformers holds experts and routers as
/// parameters: the targets "gate" and the names of the experts' matrices, and all of them with "all-linear", become
/// target_parameters; rank and alpha of two matrices that are one parameter (gate and up) double. Throws a usage error
/// if only one of those two is named.
LoraConfig with_experts(LoraConfig lora, const ExpertNames& experts);
/// with_experts if the model has experts, else the adapter config unchanged.
LoraConfig for_model(LoraConfig lora, const ModelConfig& model);
/// Throws ErrorKind::input for an adapter from transformers 4, which has adapters on each expert's layers; these have
/// become parameters.
void require_expert_parameters(const LoraConfig& lora, const ModelConfig& model, const std::filesystem::path& adapter);
/// The linear layers of a decoder layer in most families.
std::vector<std::string> common_linear_names();
/// Targets as adapter_config.json holds them: "all-linear" is replaced by the names of the model's linear layers;
/// sorted, without duplicates.
std::vector<std::string> expanded_targets(const std::vector<std::string>& targets,
                                          const std::vector<std::string>& linear_names = common_linear_names());
/// Whether modules_to_save names the module.
bool is_saved(const LoraConfig& lora, std::string_view module);
/// The entry of modules_to_save that names a module around this one, as "mlp" is around "layers.0.mlp.up_proj": PEFT
/// saves all that is in it.
std::optional<std::string> saved_around(const LoraConfig& lora, std::string_view module);

/// Reads PEFT's adapter_config.json. Throws an input error naming the key for features that are not supported (bias,
/// layer_replication, ...).
LoraConfig parse_lora_config(const Json& json, const std::string& name);
LoraConfig load_lora_config(const std::filesystem::path& folder);
/// The settings of an adapter's files. If the adapter changed the base weights when it began, files have those of twice
/// the rank with the same scale, because they contain the initial factors too: W - s B0 A0 + s B A =
/// W + s [B, -B0] [A; A0].
LoraConfig in_files(LoraConfig lora);
/// adapter_config.json as PEFT writes it: sorted keys. `linear_names` as in expanded_targets.
Json lora_config_json(const LoraConfig& lora, const std::vector<std::string>& linear_names = common_linear_names());

}  // namespace qtrain
