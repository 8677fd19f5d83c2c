#include "text/template/jinja/tests.h"

#include <algorithm>
#include <array>
#include <string>

#include "text/template/jinja/filters.h"
#include "text/template/python/access.h"
#include "text/template/python/characters.h"
#include "text/template/python/functions.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

using Test = bool (*)(PyWork& work, const PyValue& value, const PyArgs& args);
struct TestEntry {
  std::string_view name;
  Test test;
};

template <PyKind kind>
bool is_kind(PyWork&, const PyValue& v, const PyArgs&) {
  return v.is(kind);
}

bool defined(PyWork&, const PyValue& v, const PyArgs&) {
  return !v.is(PyKind::undefined);
}
bool is_true(PyWork&, const PyValue& v, const PyArgs&) {
  return v.is(PyKind::boolean) && v.boolean();
}
bool is_false(PyWork&, const PyValue& v, const PyArgs&) {
  return v.is(PyKind::boolean) && !v.boolean();
}
bool number(PyWork&, const PyValue& v, const PyArgs&) {
  return v.is(PyKind::real) || v.integer().has_value();
}
bool iterable(PyWork&, const PyValue& v, const PyArgs&) {
  return py_is_iterable(v);
}
bool lower(PyWork& work, const PyValue& v, const PyArgs&) {
  const std::string text = py_str(work, v);
  work.read(text.size() * 64);
  return py_is_lower(text);
}
bool upper(PyWork& work, const PyValue& v, const PyArgs&) {
  const std::string text = py_str(work, v);
  work.read(text.size() * 64);
  return py_is_upper(text);
}
bool callable(PyWork&, const PyValue& v, const PyArgs&) {
  return v.is(PyKind::undefined) || (v.is(PyKind::object) && v.object().callable());
}

/// Whether the value has a length and items.
bool sequence(PyWork&, const PyValue& v, const PyArgs&) {
  if (!v.is(PyKind::object)) return py_length(v).has_value();
  return v.as<PyRange>() != nullptr;
}

PyValue modulo(PyWork& work, const PyValue& v, const PyValue& by) {
  return py_binary(work, PyOp::mod, v, by);
}

bool odd(PyWork& work, const PyValue& v, const PyArgs&) {
  return py_equal(work, modulo(work, v, 2), 1);
}
bool even(PyWork& work, const PyValue& v, const PyArgs&) {
  return py_equal(work, modulo(work, v, 2), 0);
}
bool divisible(PyWork& work, const PyValue& v, const PyArgs& args) {
  const PyBound a("divisibleby", args, {"num"}, 1);
  return py_equal(work, modulo(work, v, *a[0]), 0);
}

bool same(PyWork&, const PyValue& v, const PyArgs& args) {
  const PyBound a("sameas", args, {"other"}, 1);
  // Small integers are single objects in Python, too.
  const auto i = v.integer(), j = a[0]->integer();
  if (i && j && v.kind() == a[0]->kind()) return *i == *j;
  return v.same_object(*a[0]);
}

template <PyCompare op>
bool compares(PyWork& work, const PyValue& v, const PyArgs& args) {
  const PyBound a("test", args, {"other"}, 1);
  return py_compare(work, op, v, *a[0]);
}

bool filter_exists(PyWork&, const PyValue& v, const PyArgs&) {
  return v.is_string() && is_filter_name(v.text());
}
bool is_test_name(std::string_view name);
bool test_exists(PyWork&, const PyValue& v, const PyArgs&) {
  return v.is_string() && is_test_name(v.text());
}

constexpr auto kTests = std::to_array<TestEntry>({{"defined", defined},
                                                  {"undefined", is_kind<PyKind::undefined>},
                                                  {"none", is_kind<PyKind::none>},
                                                  {"boolean", is_kind<PyKind::boolean>},
                                                  {"integer", is_kind<PyKind::integer>},
                                                  {"float", is_kind<PyKind::real>},
                                                  {"string", is_kind<PyKind::string>},
                                                  {"mapping", is_kind<PyKind::dict>},
                                                  {"true", is_true},
                                                  {"false", is_false},
                                                  {"number", number},
                                                  {"sequence", sequence},
                                                  {"iterable", iterable},
                                                  {"callable", callable},
                                                  {"lower", lower},
                                                  {"upper", upper},
                                                  {"odd", odd},
                                                  {"even", even},
                                                  {"divisibleby", divisible},
                                                  {"sameas", same},
                                                  {"filter", filter_exists},
                                                  {"test", test_exists},
                                                  {"in", compares<PyCompare::in>},
                                                  {"==", compares<PyCompare::eq>},
                                                  {"eq", compares<PyCompare::eq>},
                                                  {"equalto", compares<PyCompare::eq>},
                                                  {"!=", compares<PyCompare::ne>},
                                                  {"ne", compares<PyCompare::ne>},
                                                  {">", compares<PyCompare::gt>},
                                                  {"gt", compares<PyCompare::gt>},
                                                  {"greaterthan", compares<PyCompare::gt>},
                                                  {">=", compares<PyCompare::ge>},
                                                  {"ge", compares<PyCompare::ge>},
                                                  {"<", compares<PyCompare::lt>},
                                                  {"lt", compares<PyCompare::lt>},
                                                  {"lessthan", compares<PyCompare::lt>},
                                                  {"<=", compares<PyCompare::le>},
                                                  {"le", compares<PyCompare::le>}});

bool is_test_name(std::string_view name) {
  return std::ranges::any_of(kTests, [&](const TestEntry& t) { return t.name == name; });
}

}  // namespace

bool apply_test(PyWork& work, std::string_view name, const PyValue& subject, const PyArgs& args) {
  work.step();
  for (const TestEntry& t : kTests)
    if (t.name == name) return t.test(work, subject, args);
  py_fail("No test named '" + std::string(name) + "'");
}

}  // namespace qtrain
