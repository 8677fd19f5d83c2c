#pragma once
#include "config/dialect_table.h"
#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// Adds the settings of a document under canonical keys: flattens nested keys and translates keys of other tools by the
/// tables. Reports keys that are unknown, cannot be honored or have no effect to the diagnostics.
void read_settings(Draft& draft, const DialectTable& dialect, const ConfigDocument& document);
/// Applies key=value from the command line on top; dots name nested keys, and null restores the default.
void override_setting(Draft& draft, const DialectTable& dialect, const std::string& key, const std::string& value);

}  // namespace qtrain
