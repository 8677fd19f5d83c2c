#include "text/template/jinja/filters.h"

#include <string>

#include "text/template/jinja/filter_entry.h"
#include "text/template/jinja/number_filters.h"
#include "text/template/jinja/selection_filters.h"
#include "text/template/jinja/sequence_filters.h"
#include "text/template/jinja/text_filters.h"

namespace qtrain {
namespace {

FilterFunction find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), number_filters(), sequence_filters(), selection_filters()})
    for (const FilterEntry& f : table)
      if (f.name == name) return f.function;
  return nullptr;
}

}  // namespace

bool is_filter_name(std::string_view name) {
  return find_filter(name) != nullptr;
}

PyValue apply_filter(PyWork& work, std::string_view name, const PyValue& subject, const PyArgs& args) {
  const FilterFunction filter = find_filter(name);
  if (!filter) py_fail("No filter named '" + std::string(name) + "'");
  work.step();
  return filter(work, subject, args);
}

}  // namespace qtrain
