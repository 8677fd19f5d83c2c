#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// The chat format of another tool under its name there, such as "llamafactory_qwen" or "axolotl_deepseek_v2": a
/// template source, empty if there is none. Text only, like `find_named_template`.
std::string find_turn_format(std::string_view name);

}  // namespace qtrain
