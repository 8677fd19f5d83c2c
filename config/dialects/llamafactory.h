#pragma once
#include "config/config.h"
#include "config/setting.h"

namespace qtrain {

void settle_llamafactory(Draft& draft);
void complete_llamafactory(ResolvedConfig& config);

}  // namespace qtrain
