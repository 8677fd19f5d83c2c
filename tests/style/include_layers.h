#pragma once
#include <string>
#include <vector>

#include "tests/style/source_tree.h"

namespace qtrain::style {

/// Includes in one file that violate the order of the folders (docs/architecture.md), with one message each.
std::vector<std::string> layer_violations(const SourceFile& file);

}  // namespace qtrain::style
