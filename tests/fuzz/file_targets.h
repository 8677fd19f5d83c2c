#pragma once
#include <vector>

#include "tests/fuzz/targets.h"

namespace qtrain::fuzz {

/// One file of a folder, given arbitrary bytes; the others are good.
std::vector<Target> file_targets();

}  // namespace qtrain::fuzz
