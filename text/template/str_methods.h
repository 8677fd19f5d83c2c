#pragma once
#include <span>
#include <string>
#include <string_view>

#include "text/template/py_objects.h"
#include "text/template/py_value.h"

namespace qtrain {

struct PyMethodEntry {
  std::string_view name;
  PyFunction function;
};

/// The methods of a str that templates may call, by name.
std::span<const PyMethodEntry> str_methods();

/// text.format(*args, **kwargs)
PyValue py_format_text(TemplateRun& run, std::string_view text, const PyArgs& args);

}  // namespace qtrain
