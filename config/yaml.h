#pragma once
#include <string_view>
#include "config/document.h"

namespace qtrain {

/// One YAML document as JSON, by the rules of YAML 1.1 as PyYAML has them (yes and no are booleans, << merges), but
/// that 2e-4 is a number, a key given twice is an error, and tags other than those of plain values are refused.
ConfigDocument parse_yaml(std::string_view text, std::string_view name);
/// The value of a scalar without quotes: true, 12, 1e-4, or the text itself. Empty and null are not asked for.
Json yaml_plain_value(std::string_view text);

}  // namespace qtrain
