#pragma once
#include <filesystem>
#include <string_view>

namespace qtrain {

/// Whether a model folder has weights under this name: one file, or shards and their index.
bool is_weight_file(std::string_view name);

/// Whether a folder has weights, or files that `weights_in` refuses by name: an unfinished download, shards without
/// their index, pickles, GGUF.
bool has_weights(const std::filesystem::path& folder);

/// The safetensors file or index of a folder. If there is none, throws an input error that says what there is instead.
std::filesystem::path weights_in(const std::filesystem::path& folder);

}  // namespace qtrain
