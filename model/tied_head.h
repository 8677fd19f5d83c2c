#pragma once
#include <filesystem>
#include <string>

#include "core/log.h"
#include "core/safetensors.h"
#include "model/model_config.h"

namespace qtrain {

/// Where the config ties head and embedding and the files of the folder hold both with different values, the model is
/// untied, its config.json too, as transformers 5 does it: true then. Files that are not there change nothing.
bool untie_by_weights(ModelConfig& config, const std::filesystem::path& folder);
void warn_of_untied(Log& log, const std::filesystem::path& folder);

/// The name of a weight of the model in its files, as name_in; of tied ones the file may hold the head alone, which is
/// the embedding then.
std::string weight_in(const SafetensorsReader& reader, const std::string& name, const ModelConfig& config);

}  // namespace qtrain
