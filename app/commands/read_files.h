#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace qtrain {

// These functions list files that commands read, so that no result overwrites them.

/// The files of a model or adapter that programs read to load it. `name` may be empty.
std::vector<std::filesystem::path> files_of_model(const std::string& name);
/// The files that a run wrote to its output directory, except pages: its result, its records and its checkpoints.
std::vector<std::filesystem::path> files_of_run(const std::filesystem::path& output);
/// A config and the rows, model, adapter, tokenizer and templates that it names. Leaves out what cannot be listed:
/// reading it later reports the error.
std::vector<std::filesystem::path> files_of_config(const std::string& file, const Config& config);

}  // namespace qtrain
