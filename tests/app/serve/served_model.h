#pragma once
#include <filesystem>
#include <string>

namespace qtrain::testing {

/// Writes a ChatML model of 2 layers that answers noise, which depends on every token before it, and an adapter on it.
void write_noise_model(const std::filesystem::path& model, const std::filesystem::path& adapter);

}  // namespace qtrain::testing
