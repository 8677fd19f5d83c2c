#include "text/template/jinja/scope.h"

namespace qtrain {

const PyValue* TemplateScope::find(PyWork& work, std::string_view name) const {
  constexpr std::size_t kVariablesPerStep = 16;
  for (const TemplateScope* scope = this; scope; scope = scope->parent_.get()) {
    work.step(scope->variables_.size() / kVariablesPerStep);
    for (const auto& [key, value] : scope->variables_)
      if (key == name) return &value;
  }
  return nullptr;
}

void TemplateScope::set(std::string_view name, PyValue value) {
  for (auto& [key, held] : variables_)
    if (key == name) {
      held = std::move(value);
      return;
    }
  variables_.emplace_back(name, std::move(value));
}

}  // namespace qtrain
