#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace qtrain {

/// What commands read, so that they do not write their results there.

/// The files of a model or an adapter that programs read when they load it. `name` may be empty.
std::vector<std::filesystem::path> files_of_model(const std::string& name);
/// What a run has written into its output directory, but pages: the files of its result, its records, its checkpoints.
std::vector<std::filesystem::path> files_of_run(const std::filesystem::path& output);
/// A config, and the rows, the model, the adapter, the tokenizer and the templates that it names. What cannot be listed
/// is left out: reading it says what is wrong.
std::vector<std::filesystem::path> files_of_config(const std::string& file, const Config& config);

}  // namespace qtrain
