#include "text/template/jinja/state.h"

namespace qtrain {

const PyValue* TemplateScope::find(std::string_view name) const {
  for (const TemplateScope* scope = this; scope; scope = scope->parent_.get())
    if (const auto at = scope->variables_.find(name); at != scope->variables_.end()) return &at->second;
  return nullptr;
}

void TemplateScope::set(std::string_view name, PyValue value) {
  if (const auto at = variables_.find(name); at != variables_.end())
    at->second = std::move(value);
  else
    variables_.emplace(name, std::move(value));
}

}  // namespace qtrain
