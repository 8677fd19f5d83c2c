#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace qtrain {

/// Names of common chat formats, for folders without a template.
std::vector<std::string_view> template_names();

/// The template of that name, including those of `find_turn_format`; empty if there is none. Ignores hyphens and case:
/// "Llama-3" is "llama3". Supports text conversations only: raises for tools and tool calls, which need the model's own
/// template. Assistant text is in {% generation %} blocks.
std::string find_named_template(std::string_view name);

}  // namespace qtrain
