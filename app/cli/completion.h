#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/command.h"

namespace qtrain {

/// What the shell offers as completions at one place of the command line.
struct Hint {
  enum class Kind : std::uint8_t { nothing, words, folders, files, words_and_folders };
  Kind kind = Kind::nothing;
  std::string words = {};  ///< separated by blanks
};
Hint hint_of(const Flag& flag);
/// Completion of a command's operands; for a command that takes a config, of the config file.
Hint hint_of_operands(const Command& command);

/// A config key and the completion of its value.
struct KeyHint {
  std::string_view key;
  Hint hint;
};
std::vector<KeyHint> key_hints();

/// All names, separated by blanks; key_assignments puts `=` after each key.
std::string command_words();
std::string flag_words(const Command& command);
std::string key_assignments();

/// File extensions of configs, as alternatives of a shell pattern.
inline constexpr std::string_view kConfigEnds = "json|jsonc|yaml|yml";

/// Completion script for "bash", "zsh" or "fish".
std::string completion_script(std::string_view shell);
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace qtrain
