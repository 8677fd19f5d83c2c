#pragma once
#include <vector>

#include "app/cli/command_table.h"

namespace qtrain {

/// These flags, and then those that say how tokens are chosen (app/commands/sampling_flags.h).
std::vector<Flag> with_sampling(std::vector<Flag> flags);

}  // namespace qtrain
