#include "text/template/jinja/attribute_getter.h"

#include <string>
#include <vector>

#include "text/template/python/access.h"
#include "text/template/python/characters.h"
#include "text/template/python/numbers.h"
#include "text/template/python/text.h"

namespace qtrain {
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

PyGetter attribute_getter(PyWork& work, const PyValue& attribute, Folding folding, const PyValue* otherwise) {
  PyValue replacement = otherwise ? *otherwise : PyValue();
  return [&work, parts = attribute_parts(attribute), folding, replacement](PyValue value) -> PyValue {
    for (const PyValue& part : parts) {
      value = py_item(work, value, part);
      if (value.is(PyKind::undefined) && !replacement.is(PyKind::none)) value = replacement;
    }
    if (folding == Folding::none || !value.is_string()) return value;
    work.make(value.text().size());
    work.read(value.text().size() * 64);
    return PyValue(py_lower(value.text()));
  };
}

}  // namespace qtrain
