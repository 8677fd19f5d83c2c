#pragma once
#include <span>
#include <string_view>

namespace qtrain {

/// A chat format of many models, for folders without a template of their own. Conversations of texts: tools and
/// reasoning need the model's own template. What the assistant says stands in {% generation %} blocks.
struct NamedTemplate {
  std::string_view name, source;
};
std::span<const NamedTemplate> named_templates();

/// The source of that name, empty if there is none. Hyphens and case do not count: "Llama-3" is "llama3".
std::string_view find_named_template(std::string_view name);

}  // namespace qtrain
