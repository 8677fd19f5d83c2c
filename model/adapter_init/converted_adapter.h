#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"
#include "model/transformer.h"

namespace qtrain {

/// The tensors of an adapter's file, limited to the parts that this rank owns. If the base weights were changed when
/// the adapter began, they are those of an adapter of twice the rank on the original weights, as PEFT converts them:
/// [A; A0] and [B, -B0]. Context and model must outlive the returned sources.
std::vector<TensorSource> adapter_sources(Ctx& ctx, Transformer& model);

/// The inverse: reads the factors and, if there are any, the initial ones. Returns the unused names in the file.
std::vector<std::string> load_adapter_file(Ctx& ctx, Transformer& model, const std::filesystem::path& path);

}  // namespace qtrain
