#pragma once
#include <string_view>

#include "train/cli/arguments.h"

namespace qtrain {

/// The function `int run_NAME(const Arguments&)` that a file of train/commands/ defines, or null. The build makes this
/// function from those files, so that a command is one file there and one row in command_table.cpp.
RunCommand runner_of(std::string_view name);

}  // namespace qtrain
