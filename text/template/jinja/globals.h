#pragma once
#include <ctime>
#include <memory>
#include <optional>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// What every template may call: range, dict, namespace, joiner, raise_exception, strftime_now.
class TemplateGlobals {
 public:
  /// `now` is what strftime_now tells.
  explicit TemplateGlobals(std::time_t now);
  /// Namespaces may hold themselves; those that were made are emptied.
  ~TemplateGlobals();
  TemplateGlobals(const TemplateGlobals&) = delete;
  TemplateGlobals& operator=(const TemplateGlobals&) = delete;

  /// None for another name.
  std::optional<PyValue> find(std::string_view name) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace qtrain
