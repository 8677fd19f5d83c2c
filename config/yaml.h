#pragma once
#include <string_view>
#include "config/document.h"

namespace qtrain {

/// Parses one YAML document as JSON, by the rules of YAML 1.1 as in PyYAML (yes and no are booleans, << merges), except
/// that 2e-4 is a number, duplicate keys are errors, and tags other than those of plain values are refused.
ConfigDocument parse_yaml(std::string_view text, std::string_view name);
/// The value of an unquoted scalar: true, 12, 1e-4, or the text itself. Must not be called for empty or null scalars.
Json yaml_plain_value(std::string_view text);

}  // namespace qtrain
