#pragma once
#include <ctime>
#include <memory>
#include <optional>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// The functions available to every template: range, dict, namespace, joiner, raise_exception, strftime_now.
class TemplateGlobals {
 public:
  /// `now`: the time for strftime_now.
  explicit TemplateGlobals(std::time_t now);
  /// Empties all namespaces, since they may contain themselves.
  ~TemplateGlobals();
  TemplateGlobals(const TemplateGlobals&) = delete;
  TemplateGlobals& operator=(const TemplateGlobals&) = delete;

  /// None for other names.
  std::optional<PyValue> find(std::string_view name) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

// Jinja's tests: `subject is name(args)`.

/// Throws for an unknown test and for the test's own errors.
bool apply_test(PyWork& work, std::string_view name, const PyValue& subject, const PyArgs& args);

}  // namespace qtrain
