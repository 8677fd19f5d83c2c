#include <array>
#include <ctime>

#include "text/template/py_args.h"
#include "text/template/py_objects.h"
#include "text/template/py_ops.h"
#include "text/template/py_text.h"
#include "text/template/str_methods.h"

namespace qtrain {
namespace {

using Run = TemplateRun;

PyValue make_range(Run&, const PyValue&, const PyArgs& args) {
  const PyBound a("range", args, {"start", "stop", "step"}, 1);
  const PyInt first = a.integer(0);
  return std::make_shared<PyRange>(a[1] ? first : 0, a.integer(1, first), a.integer(2, 1));
}

/// Calls `put` for every key and value of dict(*args, **kwargs).
template <class Put>
void each_entry(Run& run, const PyArgs& args, const Put& put) {
  if (args.positional.size() > 1) py_fail("dict expected at most 1 argument");
  for (const PyValue& source : args.positional) {
    if (source.is(PyKind::dict)) {
      for (const auto& [key, value] : source.dict().entries) put(key, value);
      continue;
    }
    for (const PyValue& pair : py_list(run.work(), source)) {
      const PyItems items = py_list(run.work(), pair);
      if (items.size() != 2) py_fail("dictionary update sequence element has a length other than 2");
      put(items[0], items[1]);
    }
  }
  for (const auto& [key, value] : args.keywords) put(PyValue(key), value);
}

PyValue make_dict(Run& run, const PyValue&, const PyArgs& args) {
  PyDict dict;
  each_entry(run, args, [&](const PyValue& key, const PyValue& value) { dict.set(run.work(), key, value); });
  return dict;
}

PyValue make_namespace(Run& run, const PyValue&, const PyArgs& args) {
  auto made = std::make_shared<PyNamespace>();
  run.watch(made);
  each_entry(run, args, [&](const PyValue& key, const PyValue& value) {
    if (!key.is_string()) py_fail("a namespace's attributes must have names");
    made->set(key.text(), value);
  });
  return made;
}

PyValue make_joiner(Run&, const PyValue&, const PyArgs& args) {
  const PyBound a("joiner", args, {"sep"});
  return std::make_shared<PyJoiner>(a.value(0, ", "));
}

PyValue raise_exception(Run& run, const PyValue&, const PyArgs& args) {
  const PyBound a("raise_exception", args, {"message"}, 1);
  py_fail("the template refuses this conversation: " + py_str(run.work(), *a[0]));
}

/// datetime.strftime of a time without a zone: %f is zero, %z and %Z are empty.
PyValue strftime_now(Run& run, const PyValue&, const PyArgs& args) {
  const PyBound a("strftime_now", args, {"format"}, 1);
  std::string format = py_replace(run.work(), a.text(0), "%%", "\x01");
  for (const auto& [from, to] : {std::pair{"%f", "000000"}, {"%z", ""}, {"%Z", ""}})
    format = py_replace(run.work(), format, from, to);
  format = py_replace(run.work(), format, "\x01", "%%");
  const std::time_t now = run.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::string text(format.size() * 64 + 1, '\0');  // the longest directives take some 30 characters
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return text;
}

constexpr auto kGlobals = std::to_array<PyMethodEntry>({{"range", make_range},
                                                        {"dict", make_dict},
                                                        {"namespace", make_namespace},
                                                        {"joiner", make_joiner},
                                                        {"raise_exception", raise_exception},
                                                        {"strftime_now", strftime_now}});

}  // namespace

std::optional<PyValue> template_global(std::string_view name) {
  for (const PyMethodEntry& g : kGlobals)
    if (g.name == name) return std::make_shared<PyBuiltin>(g.name, g.function);
  return std::nullopt;
}

}  // namespace qtrain
