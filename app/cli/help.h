#pragma once
#include <string>

#include "app/cli/command.h"

namespace qtrain {

/// Text of `qtrain --help` and of `qtrain COMMAND --help`.
std::string general_help();
std::string command_help(const Command& command);

}  // namespace qtrain
