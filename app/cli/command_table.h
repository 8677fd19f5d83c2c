#pragma once
#include <string_view>
#include <vector>

#include "app/cli/command.h"

namespace qtrain {

/// Every command of this build, in the order of the help.
const std::vector<Command>& commands();
/// The command of that name, or null.
const Command* find_command(std::string_view name);

}  // namespace qtrain
