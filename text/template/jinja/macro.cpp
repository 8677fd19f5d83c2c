#include "text/template/jinja/macro.h"

#include <algorithm>

#include "text/template/jinja/evaluator.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

/// Removes the keyword argument of this name from `keywords`.
std::optional<PyValue> take_keyword(std::vector<std::pair<std::string, PyValue>>& keywords, std::string_view name) {
  const auto found = std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == name; });
  if (found == keywords.end()) return std::nullopt;
  PyValue value = std::move(found->second);
  keywords.erase(found);
  return value;
}

}  // namespace

std::string PyMacro::repr(PyWork&) {
  return "<Macro " + (stmt_.name.empty() ? "anonymous" : py_quote(stmt_.name)) + ">";
}

std::optional<PyValue> PyMacro::attribute(std::string_view name) {
  if (name == "name") return stmt_.name.empty() ? PyValue() : PyValue(stmt_.name);
  if (name == "caller") return stmt_.macro.uses.caller;
  if (name == "catch_kwargs") return stmt_.macro.uses.kwargs;
  if (name == "catch_varargs") return stmt_.macro.uses.varargs;
  if (name != "arguments") return std::nullopt;
  return PyValue::tuple(PyItems(stmt_.macro.parameters.begin(), stmt_.macro.parameters.end()));
}

PyValue PyMacro::call(PyWork&, const PyArgs& args) {
  const auto self = shared_from_this();  // the name may be reassigned meanwhile
  return body_(args);
}

void bind_parameters(TemplateState& state, const TemplateStmt& macro, const PyArgs& args) {
  const MacroParts& parts = macro.macro;
  const std::string name = py_quote(macro.name);
  auto keywords = args.keywords;
  const std::size_t count = parts.parameters.size(), first_default = count - parts.defaults.size();
  constexpr std::size_t kKeywordsPerStep = 16;
  for (std::size_t i = 0; i < count; ++i) {
    state.work.step(keywords.size() / kKeywordsPerStep);
    const std::string& parameter = parts.parameters[i];
    std::optional<PyValue> value;
    if (i < args.positional.size())
      value = args.positional[i];
    else
      value = take_keyword(keywords, parameter);
    if (!value)
      value = i >= first_default ? evaluate(state, *parts.defaults[i - first_default])
                                 : PyValue::undefined("parameter " + py_quote(parameter) + " was not provided");
    state.scope->set(parameter, *std::move(value));
  }
  const bool named_caller =
      std::find(parts.parameters.begin(), parts.parameters.end(), "caller") != parts.parameters.end();
  if (parts.uses.caller && !named_caller)
    state.scope->set("caller", take_keyword(keywords, "caller").value_or(PyValue::undefined("No caller defined")));
  if (parts.uses.kwargs) {
    PyDict rest;
    for (auto& [key, value] : keywords) rest.set(state.work, key, value);
    state.scope->set("kwargs", std::move(rest));
  } else if (!keywords.empty()) {
    py_fail("macro " + name + " takes no keyword argument " + py_quote(keywords[0].first));
  }
  const std::size_t used = std::min(count, args.positional.size());
  if (parts.uses.varargs)
    state.scope->set("varargs", PyValue::tuple({args.positional.begin() + static_cast<std::ptrdiff_t>(used),
                                                args.positional.end()}));
  else if (args.positional.size() > count)
    py_fail("macro " + name + " takes not more than " + std::to_string(count) + " argument(s)");
}

}  // namespace qtrain
