#pragma once
#include <filesystem>

namespace qtrain {

/// Whether a folder holds weights, or something that was to become weights and that `weights_in` refuses by name: an
/// unfinished download, shards without their index, pickles, GGUF.
bool has_weights(const std::filesystem::path& folder);

/// The safetensors file or index of a folder. An input error where there is none, which says what there is instead.
std::filesystem::path weights_in(const std::filesystem::path& folder);

}  // namespace qtrain
