#include <algorithm>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/py_objects.h"
#include "text/template/py_text.h"

namespace qtrain {
namespace {

/// Takes the keyword argument of this name out of `keywords`.
std::optional<PyValue> take_keyword(std::vector<std::pair<std::string, PyValue>>& keywords, std::string_view name) {
  const auto found = std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == name; });
  if (found == keywords.end()) return std::nullopt;
  PyValue value = std::move(found->second);
  keywords.erase(found);
  return value;
}

}  // namespace

std::shared_ptr<PyMacro> TemplateRun::make_macro(const TemplateStmt& s) {
  captured_.push_back(scope_);
  return std::make_shared<PyMacro>(s, scope_);
}

void TemplateRun::execute_call_block(const TemplateStmt& s) {
  const PyValue caller(make_macro(s));
  write(py_str(work_, evaluate_call(*s.value, &caller)));
}

void TemplateRun::bind_parameters(const PyMacro& macro, const PyArgs& args) {
  const MacroParts& parts = macro.stmt.macro;
  const std::string name = py_quote(macro.stmt.name);
  auto keywords = args.keywords;
  const std::size_t count = parts.parameters.size(), first_default = count - parts.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& parameter = parts.parameters[i];
    std::optional<PyValue> value;
    if (i < args.positional.size())
      value = args.positional[i];
    else
      value = take_keyword(keywords, parameter);
    if (!value)
      value = i >= first_default ? evaluate(*parts.defaults[i - first_default])
                                 : PyValue::undefined("parameter " + py_quote(parameter) + " was not provided");
    scope_->set(parameter, *std::move(value));
  }
  const bool named_caller =
      std::find(parts.parameters.begin(), parts.parameters.end(), "caller") != parts.parameters.end();
  if (parts.uses_caller && !named_caller)
    scope_->set("caller", take_keyword(keywords, "caller").value_or(PyValue::undefined("No caller defined")));
  if (parts.uses_kwargs) {
    PyDict rest;
    for (auto& [key, value] : keywords) rest.set(work_, key, value);
    scope_->set("kwargs", std::move(rest));
  } else if (!keywords.empty()) {
    py_fail("macro " + name + " takes no keyword argument " + py_quote(keywords[0].first));
  }
  const std::size_t used = std::min(count, args.positional.size());
  if (parts.uses_varargs)
    scope_->set("varargs",
                PyValue::tuple({args.positional.begin() + static_cast<std::ptrdiff_t>(used), args.positional.end()}));
  else if (args.positional.size() > count)
    py_fail("macro " + name + " takes not more than " + std::to_string(count) + " argument(s)");
}

PyValue TemplateRun::call_macro(const PyMacro& macro, const PyArgs& args) {
  const PyWork::Level level(work_);
  const int line = line_;
  const auto self = macro.shared_from_this();  // the name may be set to something else meanwhile
  const ScopePtr outer = std::exchange(scope_, std::make_shared<TemplateScope>(macro.scope));
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  const auto restore = [&](auto*) {
    scope_ = outer;
    out_ = out;
  };
  const std::unique_ptr<TemplateRun, decltype(restore)> guard(this, restore);
  bind_parameters(macro, args);
  execute(macro.stmt.body);
  line_ = line;
  return text;
}

}  // namespace qtrain
