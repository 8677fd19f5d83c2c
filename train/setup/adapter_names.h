#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "model/lora.h"
#include "model/model_config.h"

namespace qtrain {

/// Throws ErrorKind::usage if a name in lora_target_modules, or a pattern in rank_pattern or alpha_pattern, matches no
/// layer of the model; lists each with the nearest name that does. PEFT ignores them silently.
void require_adapter_names(const LoraConfig& lora, const ModelConfig& model);

/// The target_parameters of an adapter that match no router or expert parameter. PEFT ignores them silently if others
/// match.
std::vector<std::string> idle_parameters(const LoraConfig& lora, const ModelConfig& model);

/// A run that continues from an adapter takes over its settings. Throws ErrorKind::usage for config keys that disagree
/// with them on any layer of the model.
void check_adapter_keys(const ResolvedConfig& config, const LoraConfig& adapter, const ModelConfig& model);

}  // namespace qtrain
