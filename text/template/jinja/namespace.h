#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/python/value.h"

namespace qtrain {

/// Result of namespace(): an object whose attributes {% set %} can change.
class PyNamespace : public PyObject {
 public:
  std::string_view type_name() const override { return "TemplateNamespace"; }
  std::string repr(PyWork& work) override;
  std::optional<PyValue> attribute(std::string_view name) override;
  /// Throws for names that begin with an underscore.
  void set(std::string_view name, PyValue value);
  void clear();
  void take_apart(PyItems& into) override;
  ~PyNamespace() override { clear(); }

 private:
  std::vector<std::pair<std::string, PyValue>> attributes_;
};

}  // namespace qtrain
