#pragma once
#include "config/setting.h"

namespace qtrain {

void settle_llamafactory(Draft& draft);

}  // namespace qtrain
