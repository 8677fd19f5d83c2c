#pragma once
#include "config/config.h"
#include "data/dataset.h"

namespace qtrain {

/// An input error where rows of a config have ids or labels that its model has no embedding for: names the first row.
void require_vocabulary(const Config& config, const Dataset& rows, Split split);

}  // namespace qtrain
