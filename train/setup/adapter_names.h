#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "model/lora.h"
#include "model/model_config.h"

namespace qtrain {

/// A usage error that lists every name in lora_target_modules, and every pattern in rank_pattern and alpha_pattern,
/// that matches no layer of the model, each with the nearest name that does: PEFT drops them without a word.
void require_adapter_names(const LoraConfig& lora, const ModelConfig& model);

/// The target_parameters of an adapter that match no parameter of a router or of experts: PEFT is silent about them
/// where others match.
std::vector<std::string> idle_parameters(const LoraConfig& lora, const ModelConfig& model);

/// A run that goes on from an adapter takes its settings: a usage error for keys of the config that disagree with them,
/// be it about one layer of the model.
void check_adapter_keys(const ResolvedConfig& config, const LoraConfig& adapter, const ModelConfig& model);

}  // namespace qtrain
