#include "text/template/jinja/builtins.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "text/template/jinja/filters.h"
#include "text/template/jinja/objects.h"
#include "text/template/python/access.h"
#include "text/template/python/characters.h"
#include "text/template/python/functions.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/text.h"

namespace qtrain {
namespace {

/// Result of joiner(): nothing on the first call, then its separator.
class PyJoiner : public PyObject {
 public:
  explicit PyJoiner(PyValue separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  PyValue call(PyWork&, const PyArgs&) override { return std::exchange(used_, true) ? separator_ : PyValue(""); }

 private:
  PyValue separator_;
  bool used_ = false;
};

/// Calls `put` for every key and value of dict(*args, **kwargs).
template <class Put>
void each_entry(PyWork& work, const PyArgs& args, const Put& put) {
  if (args.positional.size() > 1) py_fail("dict expected at most 1 argument");
  for (const PyValue& source : args.positional) {
    if (source.is(PyKind::dict)) {
      for (const auto& [key, value] : source.dict().entries) work.step(), put(key, value);
      continue;
    }
    for (const PyValue& pair : py_list(work, source)) {
      work.step();
      const PyItems items = py_list(work, pair);
      if (items.size() != 2) py_fail("dictionary update sequence element has a length other than 2");
      put(items[0], items[1]);
    }
  }
  for (const auto& [key, value] : args.keywords) put(PyValue(key), value);
}

PyValue make_range(PyWork&, const PyValue&, const PyArgs& args) {
  const PyBound a("range", args, {"start", "stop", "step"}, 1);
  const PyInt first = a.integer(0);
  return std::make_shared<PyRange>(a[1] ? first : 0, a.integer(1, first), a.integer(2, 1));
}

PyValue make_dict(PyWork& work, const PyValue&, const PyArgs& args) {
  PyDict dict;
  each_entry(work, args, [&](const PyValue& key, const PyValue& value) { dict.set(work, key, value); });
  return dict;
}

PyValue make_joiner(PyWork&, const PyValue&, const PyArgs& args) {
  const PyBound a("joiner", args, {"sep"});
  return std::make_shared<PyJoiner>(a.value(0, ", "));
}

PyValue raise_exception(PyWork& work, const PyValue&, const PyArgs& args) {
  const PyBound a("raise_exception", args, {"message"}, 1);
  py_fail("the template rejects this conversation: " + py_str(work, *a[0]));
}

}  // namespace

/// Data that the global functions need besides their arguments; they are its methods.
class TemplateGlobals::State : public PyObject {
 public:
  explicit State(std::time_t now) : now_(now) {}
  std::string_view type_name() const override { return "Globals"; }

  PyValue make_namespace(PyWork& work, const PyArgs& args) {
    constexpr std::size_t kMaxNamespaces = 1000;  // at any time
    if (namespaces_.size() >= kMaxNamespaces) std::erase_if(namespaces_, [](const auto& n) { return n.expired(); });
    if (namespaces_.size() >= kMaxNamespaces) py_fail("the template creates too many namespaces");
    const auto made = std::make_shared<PyNamespace>();
    namespaces_.push_back(made);
    each_entry(work, args, [&](const PyValue& key, const PyValue& value) {
      if (!key.is_string()) py_fail("attributes of a namespace must have names");
      made->set(key.text(), value);
    });
    return made;
  }

  /// datetime.strftime for a time without a zone: %f is zero, %z and %Z are empty.
  PyValue strftime_now(PyWork& work, const PyArgs& args) const {
    const PyBound a("strftime_now", args, {"format"}, 1);
    std::string format = py_replace(work, a.text(0), "%%", "\x01");
    for (const auto& [from, to] : {std::pair{"%f", "000000"}, {"%z", ""}, {"%Z", ""}})
      format = py_replace(work, format, from, to);
    format = py_replace(work, format, "\x01", "%%");
    std::tm local{};
    localtime_r(&now_, &local);
    work.make(format.size() * 64);
    std::string text(format.size() * 64 + 1, '\0');  // the longest directives produce about 30 characters
    text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
    return text;
  }

  void empty_namespaces() {
    for (const auto& weak : namespaces_)
      if (const auto made = weak.lock()) made->clear();
  }

 private:
  std::time_t now_;
  std::vector<std::weak_ptr<PyNamespace>> namespaces_;
};

TemplateGlobals::TemplateGlobals(std::time_t now) : state_(std::make_shared<State>(now)) {}

TemplateGlobals::~TemplateGlobals() {
  state_->empty_namespaces();
}

std::optional<PyValue> TemplateGlobals::find(std::string_view name) const {
  static constexpr auto kGlobals = std::to_array<PyFunctionEntry>(
      {{"range", make_range},
       {"dict", make_dict},
       {"namespace",
        [](PyWork& work, const PyValue& s, const PyArgs& a) { return s.as<State>()->make_namespace(work, a); }},
       {"joiner", make_joiner},
       {"raise_exception", raise_exception},
       {"strftime_now",
        [](PyWork& work, const PyValue& s, const PyArgs& a) { return s.as<State>()->strftime_now(work, a); }}});
  for (const PyFunctionEntry& g : kGlobals)
    if (g.name == name) return std::make_shared<PyBuiltin>(g.name, g.function, state_);
  return std::nullopt;
}

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
