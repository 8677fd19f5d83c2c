#pragma once
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// What stands behind `|` in a template.
using FilterFunction = PyValue (*)(PyWork& work, const PyValue& subject, const PyArgs& args);
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

}  // namespace qtrain
