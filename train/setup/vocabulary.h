#pragma once
#include "config/config.h"
#include "data/dataset.h"

namespace qtrain {

/// Throws ErrorKind::input if rows have token ids or labels outside the model's vocabulary; names the first such row.
void require_vocabulary(const Config& config, const Dataset& rows, Split split);

}  // namespace qtrain
