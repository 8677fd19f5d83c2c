#pragma once
#include <filesystem>
#include <vector>

#include "config/config.h"

namespace qtrain {

/// The files that a config names and that load_config reads with it: those of DeepSpeed, FSDP and accelerate, and the
/// registry of data sets of LLaMA-Factory. Throws what load_config throws.
std::vector<std::filesystem::path> files_read_with_config(const std::filesystem::path& file,
                                                          const Overrides& overrides);

}  // namespace qtrain
