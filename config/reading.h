#pragma once
#include "config/dialect_table.h"
#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// Adds what the keys of a document set, under canonical keys: nesting is undone, and keys of other tools mean what the
/// tables say. Keys that are unknown, cannot be honored or have no effect go to the diagnostics.
void read_settings(Draft& draft, const DialectTable& dialect, const ConfigDocument& document);
/// Puts key=value of the command line over them; dots name nested keys, and null takes back what the file says.
void override_setting(Draft& draft, const DialectTable& dialect, const std::string& key, const std::string& value);

}  // namespace qtrain
