#pragma once
#include "config/setting.h"

namespace qtrain {

void settle_axolotl(Draft& draft);

}  // namespace qtrain
