#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace qtrain {

/// Names of chat formats that many models have, for folders without a template of their own.
std::vector<std::string_view> template_names();

/// The template of that name, empty if there is none. Hyphens and case do not count: "Llama-3" is "llama3". Also those
/// of `find_turn_format`.
/// Conversations of texts only: with tools or calls of them it raises, as these need the model's own template. What the
/// assistant says stands in {% generation %} blocks.
std::string find_named_template(std::string_view name);

}  // namespace qtrain
