#include <algorithm>
#include <array>

#include "text/template/py_args.h"
#include "text/template/py_objects.h"
#include "text/template/py_ops.h"
#include "text/template/py_text.h"
#include "text/template/str_methods.h"

namespace qtrain {
namespace {

using Run = TemplateRun;

template <PyView::Part part>
PyValue view(Run&, const PyValue& self, const PyArgs& args) {
  const PyBound a("dict view", args, {});
  return std::make_shared<PyView>(self, part);
}

PyValue get(Run& run, const PyValue& self, const PyArgs& args) {
  const PyBound a("get", args, {"key", "default"}, 1);
  const PyValue* found = self.dict().find(run.work(), *a[0]);
  return found ? *found : a.value(1);
}

PyValue copy(Run&, const PyValue& self, const PyArgs&) {
  return self;
}

PyValue index(Run& run, const PyValue& self, const PyArgs& args) {
  const PyBound a("index", args, {"value"}, 1);
  for (std::size_t i = 0; i < self.items().size(); ++i)
    if (py_equal(run.work(), self.items()[i], *a[0])) return i;
  py_fail(py_repr(run.work(), *a[0]) + " is not in list");
}

PyValue count(Run& run, const PyValue& self, const PyArgs& args) {
  const PyBound a("count", args, {"value"}, 1);
  return static_cast<int>(std::count_if(self.items().begin(), self.items().end(),
                                        [&](const PyValue& v) { return py_equal(run.work(), v, *a[0]); }));
}

constexpr auto kDict = std::to_array<PyMethodEntry>({{"items", view<PyView::Part::items>},
                                                     {"keys", view<PyView::Part::keys>},
                                                     {"values", view<PyView::Part::values>},
                                                     {"get", get},
                                                     {"copy", copy}});
constexpr auto kList = std::to_array<PyMethodEntry>({{"index", index}, {"count", count}, {"copy", copy}});

constexpr auto kDictChanges = std::to_array<std::string_view>({"clear", "pop", "popitem", "setdefault", "update"});
constexpr auto kListChanges =
    std::to_array<std::string_view>({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});

std::span<const PyMethodEntry> methods_of(const PyValue& self) {
  switch (self.kind()) {
    case PyKind::string: return str_methods();
    case PyKind::dict: return kDict;
    case PyKind::list: return kList;
    case PyKind::tuple: return std::span(kList).first(2);
    default: return {};
  }
}

}  // namespace

std::optional<PyValue> py_method(const PyValue& self, std::string_view name) {
  for (const PyMethodEntry& m : methods_of(self))
    if (m.name == name) return std::make_shared<PyBuiltin>(m.name, m.function, self);
  return std::nullopt;
}

bool py_hidden_attribute(const PyValue& self, std::string_view name) {
  // A key that begins with one underscore is nothing of Python's and is looked up as a key.
  if (name.starts_with("__")) return !self.is(PyKind::dict) || !self.dict().find_text(name);
  if (self.is(PyKind::dict)) return std::find(kDictChanges.begin(), kDictChanges.end(), name) != kDictChanges.end();
  return self.is(PyKind::list) && std::find(kListChanges.begin(), kListChanges.end(), name) != kListChanges.end();
}

}  // namespace qtrain
