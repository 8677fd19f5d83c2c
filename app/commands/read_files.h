#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/cli/arguments.h"
#include "config/config.h"

namespace qtrain {

// These functions list files that commands read, so that no result overwrites them.

/// Appends what `list` returns. Leaves out files that cannot be listed: reading them later reports the error.
template <class List>
void append_listed(std::vector<std::filesystem::path>& all, const List& list) {
  try {
    for (const auto& file : list()) all.push_back(file);
  } catch (const Error&) {  // reported later
  }
}

/// The files of a model or adapter that programs read to load it. `name` may be empty.
std::vector<std::filesystem::path> files_of_model(const std::string& name);
/// The files that a run wrote to its output directory, except pages: its result, its records and its checkpoints.
std::vector<std::filesystem::path> files_of_run(const std::filesystem::path& output);
struct ConfigSource {
  std::string file;
  Overrides overrides;
};
/// A config and the rows, model, adapter, tokenizer, templates, prompts and other configs that it names. Leaves out
/// what cannot be listed: reading it later reports the error.
std::vector<std::filesystem::path> files_of_config(const ConfigSource& source, const Config& config);
/// The same for a command whose first operand is the config.
std::vector<std::filesystem::path> files_of_config(const Arguments& args, const Config& config);

}  // namespace qtrain
