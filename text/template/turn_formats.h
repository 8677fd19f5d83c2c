#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// The chat format of another tool under its own name there, as "llamafactory_qwen" or "axolotl_deepseek_v2": the
/// source of a chat template, empty if there is none. Texts only, as `find_named_template` has them.
std::string find_turn_format(std::string_view name);

}  // namespace qtrain
