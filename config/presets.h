#pragma once
#include "config/config.h"

namespace qtrain {

/// Sets the values of the config's preset, if it has one, for keys that were not given (presets.yaml). Adds a problem
/// for each given value that contradicts the preset.
void apply_preset(ResolvedConfig& config);

/// {"presets": [{"name", "about"}], "preset_values": [{"key", "values": [a text for each preset]}], "preset_cases":
/// [{"name", "row"}]} for the reference page.
Json presets_json();

}  // namespace qtrain
