#pragma once
#include "core/formats/json.h"

namespace qtrain {

/// The reference page of all keys, in Markdown.
std::string config_reference();
/// {"keys": {key: {"section", "default", "type", "also": [other names], "meaning"}}}
Json config_keys_json();

}  // namespace qtrain
