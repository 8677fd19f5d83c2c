#pragma once
#include <filesystem>
#include <string>

#include "core/formats/safetensors.h"
#include "core/log.h"
#include "model/model_config.h"

namespace qtrain {

/// Unties head and embedding, in config.json too, if the config ties them but the folder's files hold both with
/// different values, as transformers 5 does. Returns whether it did. Missing files change nothing.
bool untie_by_weights(ModelConfig& config, const std::filesystem::path& folder);
void warn_of_untied(Log& log, const std::filesystem::path& folder);

/// The name of a weight of the model in its files, as name_in; for a tied model whose file only holds the head, the
/// head is returned for the embedding.
std::string weight_in(const SafetensorsReader& reader, const std::string& name, const ModelConfig& config);

}  // namespace qtrain
