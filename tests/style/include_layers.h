#pragma once
#include <string>
#include <vector>

#include "tests/style/source_tree.h"

namespace qtrain::style {

/// Includes of one file that break the order of the folders (docs/architecture.md), one message each.
std::vector<std::string> layer_violations(const SourceFile& file);

}  // namespace qtrain::style
