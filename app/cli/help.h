#pragma once
#include <string>
#include <string_view>

#include "app/cli/command.h"

namespace qtrain {

/// `text` behind `label`, its lines of at most 79 columns below each other from `column` on; below a label that is too
/// long.
std::string in_columns(const std::string& label, std::string_view text, std::size_t column);

/// Text of `qtrain --help` and of `qtrain COMMAND --help`.
std::string general_help();
std::string command_help(const Command& command);

}  // namespace qtrain
