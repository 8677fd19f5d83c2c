#include "text/template/filters.h"

#include <algorithm>
#include <numeric>

#include "text/template/py_objects.h"
#include "text/template/py_ops.h"
#include "text/template/py_text.h"

namespace qtrain {

FilterFunction find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), number_filters(), sequence_filters(), selection_filters()})
    for (const FilterEntry& f : table)
      if (f.name == name) return f.function;
  return nullptr;
}

PyValue TemplateRun::apply_filter(const std::string& name, const PyValue& subject, const PyArgs& args) {
  const FilterFunction filter = find_filter(name);
  if (!filter) py_fail("No filter named '" + name + "'");
  work_.step();
  return filter(*this, subject, args);
}

namespace {

std::vector<PyValue> attribute_parts(const PyValue& attribute) {
  if (attribute.is(PyKind::none)) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<PyValue> parts;
  for (const std::string& part : py_split(attribute.text(), ".", -1)) {
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    parts.push_back(digits ? PyValue(*py_parse_int(part)) : PyValue(part));
  }
  return parts;
}

}  // namespace

PyGetter attribute_getter(TemplateRun& run, const PyValue& attribute, Folding folding, const PyValue* otherwise) {
  PyValue replacement = otherwise ? *otherwise : PyValue();
  return [&run, parts = attribute_parts(attribute), folding, replacement](PyValue value) -> PyValue {
    for (const PyValue& part : parts) {
      value = run.item(value, part);
      if (value.is(PyKind::undefined) && !replacement.is(PyKind::none)) value = replacement;
    }
    return folding == Folding::ignore_case && value.is_string() ? PyValue(py_lower(value.text())) : value;
  };
}

PyItems sorted_by(TemplateRun& run, PyItems items, const PyGetter& key, SortOrder direction) {
  std::vector<PyValue> keys;
  for (const PyValue& item : items) keys.push_back(key(item));
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    run.work().step();
    return direction == SortOrder::descending ? py_less(run.work(), keys[b], keys[a])
                                              : py_less(run.work(), keys[a], keys[b]);
  });
  PyItems sorted;
  for (const std::size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

}  // namespace qtrain
