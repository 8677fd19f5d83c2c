#pragma once
#include <string>
#include <string_view>

#include "app/cli/command.h"

namespace qtrain {

/// `text` after `label`, wrapped to 79 columns with each line starting at `column`. If `label` is too long, the text
/// starts on the next line.
std::string in_columns(const std::string& label, std::string_view text, std::size_t column);

/// Text of `qtrain --help` and of `qtrain COMMAND --help`.
std::string general_help();
std::string command_help(const Command& command);

}  // namespace qtrain
