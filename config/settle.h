#pragma once
#include "config/document.h"
#include "config/setting.h"

/// What several settings come to together.
namespace qtrain {

void settle_axolotl(Draft& draft);
void settle_llamafactory(Draft& draft);

/// Reads what `deepspeed`, `fsdp`, `fsdp_config` and `accelerate_config` name, and adds what it sets.
void add_launcher_settings(Draft& draft, const ConfigDocument& config);

}  // namespace qtrain
