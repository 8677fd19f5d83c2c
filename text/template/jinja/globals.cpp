#include "text/template/jinja/globals.h"

#include <array>
#include <string>
#include <vector>

#include "text/template/jinja/namespace.h"
#include "text/template/python/access.h"
#include "text/template/python/functions.h"
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

}  // namespace qtrain
