#pragma once
#include "config/config.h"
#include "config/setting.h"

namespace qtrain {

void settle_axolotl(Draft& draft);
void complete_axolotl(ResolvedConfig& config);

}  // namespace qtrain
