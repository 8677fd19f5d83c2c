#pragma once
#include <vector>

#include "tests/fuzz/targets.h"

namespace qtrain::fuzz {

/// Targets for one file of a folder with arbitrary bytes; the other files are valid.
std::vector<Target> file_targets();

}  // namespace qtrain::fuzz
