#pragma once
#include <string_view>
#include <vector>

#include "app/cli/command.h"

namespace qtrain {

/// All commands of this build, in the order in which the help lists them.
const std::vector<Command>& commands();
/// The command with that name, or null.
const Command* find_command(std::string_view name);

}  // namespace qtrain
