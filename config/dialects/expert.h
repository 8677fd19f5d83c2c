#pragma once
#include "config/config.h"

namespace qtrain {

void complete_expert(ResolvedConfig& config);
void complete_modelforge(ResolvedConfig& config);

}  // namespace qtrain
