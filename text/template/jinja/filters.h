#pragma once
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

// Jinja's filters: those of numbers and texts are here, the others in sequence_filters.h.

/// Function behind a filter, `subject | name(args)`.
using FilterFunction = PyValue (*)(PyWork& work, const PyValue& subject, const PyArgs& args);
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

/// Whether there is a filter of this name.
bool is_filter_name(std::string_view name);
/// subject | name(args). Throws for an unknown filter and for the filter's own errors.
PyValue apply_filter(PyWork& work, std::string_view name, const PyValue& subject, const PyArgs& args);

}  // namespace qtrain
