#pragma once
#include <filesystem>
#include <string>

namespace qtrain::testing {

/// Writes a ChatML model of 2 layers with random weights, whose output depends on every previous token, and an adapter
/// on it.
void write_noise_model(const std::filesystem::path& model, const std::filesystem::path& adapter);

}  // namespace qtrain::testing
