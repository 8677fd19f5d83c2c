#pragma once
#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// Reads the configurations that `deepspeed`, `fsdp`, `fsdp_config` and `accelerate_config` name and adds their
/// settings.
void add_launcher_settings(Draft& draft, const ConfigDocument& config);

}  // namespace qtrain
