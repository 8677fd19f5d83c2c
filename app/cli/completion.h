#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/command.h"

namespace qtrain {

/// What a shell offers in a place: words, the names of folders or of files, words and folders, or nothing.
struct Hint {
  enum class Kind : std::uint8_t { nothing, words, folders, files, words_and_folders };
  Kind kind = Kind::nothing;
  std::string words = {};  ///< with blanks between
};
Hint hint_of(const Flag& flag);
/// For what a command takes beside flags; of one that takes a config, the config.
Hint hint_of_operands(const Command& command);

/// A config key and what it takes.
struct KeyHint {
  std::string_view key;
  Hint hint;
};
std::vector<KeyHint> key_hints();

/// All names, with blanks between; of keys with `=` behind each.
std::string command_words();
std::string flag_words(const Command& command);
std::string key_assignments();

/// Config files by their ends, as the alternatives of a shell pattern.
inline constexpr std::string_view kConfigEnds = "json|jsonc|yaml|yml";

/// Completion script for "bash", "zsh" or "fish".
std::string completion_script(std::string_view shell);
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace qtrain
