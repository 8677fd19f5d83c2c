#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace qtrain {

/// A finished run, as the user started it.
struct FinishedOutput {
  const ResolvedConfig& config;
  std::string config_file;
  Overrides overrides;  ///< overrides on the command line
  std::filesystem::path folder;
};

/// Summary of the output folder: "adapter_model.safetensors (9 kB), 2 checkpoints".
std::string saved_files(const std::filesystem::path& folder);

/// Commands to try next with the result, ready for a shell.
std::vector<std::string> next_commands(const FinishedOutput& output);

/// What tries a model or adapter.
struct TriedModel {
  std::string options;  ///< --model and --adapter
  bool has_chat_template = false;
};
/// The command that talks with it, or continues a text if there is no chat template.
std::string trial_command(const TriedModel& tried);

/// "key=value" for the command line, with secrets removed.
std::string shown_override(const std::string& key, const std::string& value);

/// Quotes a word for a shell if necessary, and escapes characters that are not safe on a terminal.
std::string shell_word(const std::string& word);

}  // namespace qtrain
