#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace qtrain {

/// A finished run as its user sees it.
struct FinishedOutput {
  const ResolvedConfig& config;
  std::string config_file;
  Overrides overrides;  ///< that were given after it
  std::filesystem::path folder;
};

/// What lies in the output folder: "adapter_model.safetensors (9 kB), 2 checkpoints".
std::string saved_files(const std::filesystem::path& folder);

/// Commands that make sense with the result, ready for a shell.
std::vector<std::string> next_commands(const FinishedOutput& output);

/// "key=value" of a command line as others may read it: without what is secret.
std::string shown_override(const std::string& key, const std::string& value);

/// A word for a shell, quoted where it has to be.
std::string shell_word(const std::string& word);

}  // namespace qtrain
