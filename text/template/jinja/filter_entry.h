#pragma once
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// Function behind a filter, `subject | name(args)`.
using FilterFunction = PyValue (*)(PyWork& work, const PyValue& subject, const PyArgs& args);
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

}  // namespace qtrain
