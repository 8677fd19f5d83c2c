#pragma once
#include <map>
#include <string>
#include <string_view>

namespace qtrain {

/// The line of every key of a JSON document (comments allowed) that parse_json accepted, by dotted path:
/// "training.config.epochs" -> 12. Keys inside arrays are left out.
std::map<std::string, int> key_lines(std::string_view text);

}  // namespace qtrain
