#include "text/template/python/container_methods.h"

#include <algorithm>
#include <array>

#include "text/template/python/args.h"
#include "text/template/python/compare.h"
#include "text/template/python/dict_view.h"
#include "text/template/python/error.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

template <PyView::Part part>
PyValue view(PyWork&, const PyValue& self, const PyArgs& args) {
  const PyBound a("dict view", args, {});
  return std::make_shared<PyView>(self, part);
}

PyValue get(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("get", args, {"key", "default"}, 1);
  const PyValue* found = self.dict().find(work, *a[0]);
  return found ? *found : a.value(1);
}

PyValue copy(PyWork&, const PyValue& self, const PyArgs&) {
  return self;
}

PyValue index(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("index", args, {"value"}, 1);
  for (std::size_t i = 0; i < self.items().size(); ++i)
    if (py_equal(work, self.items()[i], *a[0])) return i;
  py_fail(py_repr(work, *a[0]) + " is not in list");
}

PyValue count(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("count", args, {"value"}, 1);
  return static_cast<int>(std::count_if(self.items().begin(), self.items().end(),
                                        [&](const PyValue& v) { return py_equal(work, v, *a[0]); }));
}

constexpr auto kDict = std::to_array<PyFunctionEntry>({{"items", view<PyView::Part::items>},
                                                       {"keys", view<PyView::Part::keys>},
                                                       {"values", view<PyView::Part::values>},
                                                       {"get", get},
                                                       {"copy", copy}});
constexpr auto kList = std::to_array<PyFunctionEntry>({{"index", index}, {"count", count}, {"copy", copy}});

}  // namespace

std::span<const PyFunctionEntry> dict_methods() {
  return kDict;
}

std::span<const PyFunctionEntry> list_methods() {
  return kList;
}

std::span<const PyFunctionEntry> tuple_methods() {
  return list_methods().first(2);
}

}  // namespace qtrain
