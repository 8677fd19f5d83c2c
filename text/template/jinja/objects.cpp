#include "text/template/jinja/objects.h"

#include <algorithm>

#include "text/template/jinja/evaluator.h"
#include "text/template/python/access.h"
#include "text/template/python/functions.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

constexpr int kMaxChainInside = 8;            // depth of generators; nested namespaces add to it
constexpr std::size_t kMaxAttributes = 1000;  // attributes are searched linearly

/// Removes the keyword argument of this name from `keywords`.
std::optional<PyValue> take_keyword(std::vector<std::pair<std::string, PyValue>>& keywords, std::string_view name) {
  const auto found = std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == name; });
  if (found == keywords.end()) return std::nullopt;
  PyValue value = std::move(found->second);
  keywords.erase(found);
  return value;
}

}  // namespace

std::string PyNamespace::repr(PyWork& work) {
  const PyWork::Level level(work);
  std::string text = "<Namespace {";
  for (std::size_t i = 0; i < attributes_.size(); ++i)
    text += (i ? ", " : "") + py_quote(attributes_[i].first) + ": " + py_repr(work, attributes_[i].second);
  return text + "}>";
}

std::optional<PyValue> PyNamespace::attribute(std::string_view name) {
  const auto found = std::find_if(attributes_.begin(), attributes_.end(), [&](auto& a) { return a.first == name; });
  return found == attributes_.end() ? std::nullopt : std::optional(found->second);
}

void PyNamespace::set(std::string_view name, PyValue value) {
  if (name.starts_with('_'))
    py_fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got " + py_quote(name) +
            ". Please rename the attribute.");
  if (value.chain() > kMaxChainInside) py_fail("the template nests generators in a namespace too deeply");
  const auto found = std::find_if(attributes_.begin(), attributes_.end(), [&](auto& a) { return a.first == name; });
  if (found != attributes_.end()) {
    found->second = std::move(value);
    return;
  }
  if (attributes_.size() >= kMaxAttributes) py_fail("a namespace has too many attributes");
  attributes_.emplace_back(name, std::move(value));
}

void PyNamespace::take_apart(PyItems& into) {
  for (auto& [name, value] : attributes_) into.push_back(std::move(value));
  attributes_.clear();
}

void PyNamespace::clear() {
  PyItems values;
  take_apart(values);
  py_release(std::move(values));
}

const std::optional<PyValue>& PyLoop::peek() {
  if (!peeked_) after_ = next_();
  peeked_ = true;
  return after_;
}

std::optional<PyValue> PyLoop::advance() {
  std::optional<PyValue> item = peek();
  peeked_ = false;
  after_.reset();
  if (!item) {
    peeked_ = true;  // an exhausted iterator stays exhausted
    return std::nullopt;
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = item;
  return item;
}

/// An iterable without a length is consumed to determine it.
std::optional<std::size_t> PyLoop::length() {
  if (length_) return length_;
  if ((length_ = py_length(iterable_))) return length_;
  PyItems rest;
  if (peek()) rest.push_back(*after_);
  if (after_)
    while (auto item = next_()) rest.push_back(std::move(*item));
  length_ = static_cast<std::size_t>(index0_ + 1) + rest.size();
  peeked_ = false;
  after_.reset();
  next_ = [rest = std::move(rest), at = std::size_t{0}]() mutable -> std::optional<PyValue> {
    return at < rest.size() ? std::optional(rest[at++]) : std::nullopt;
  };
  return length_;
}

std::string PyLoop::repr(PyWork&) {
  return "<LoopContext " + py_int_text(index0_ + 1) + "/" + std::to_string(*length()) + ">";
}

PyValue PyLoop::cycle(const PyArgs& args) const {
  if (args.positional.empty()) py_fail("no items for cycling given");
  return args.positional[static_cast<std::size_t>(index0_) % args.positional.size()];
}

bool PyLoop::changed(PyWork& work, const PyArgs& args) {
  PyValue value = PyValue::tuple(args.positional);
  if (last_changed_ && py_equal(work, *last_changed_, value)) return false;
  last_changed_ = std::move(value);
  return true;
}

std::optional<PyValue> PyLoop::attribute(std::string_view name) {
  const auto size = [&] { return static_cast<PyInt>(*length()); };
  if (name == "index") return index0_ + 1;
  if (name == "index0") return index0_;
  if (name == "first") return index0_ == 0;
  if (name == "last") return !peek().has_value();
  if (name == "length") return size();
  if (name == "revindex") return size() - index0_;
  if (name == "revindex0") return size() - index0_ - 1;
  if (name == "depth") return depth0_ + 1;
  if (name == "depth0") return depth0_;
  if (name == "previtem") return index0_ > 0 ? *before_ : PyValue::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *after_ : PyValue::undefined("there is no next item");
  const PyValue self(shared_from_this());
  if (name == "cycle")
    return std::make_shared<PyBuiltin>(
        "cycle", [](PyWork&, const PyValue& s, const PyArgs& a) { return s.as<PyLoop>()->cycle(a); }, self);
  if (name != "changed") return std::nullopt;
  constexpr PyFunction changed = [](PyWork& work, const PyValue& s, const PyArgs& a) {
    return PyValue(s.as<PyLoop>()->changed(work, a));
  };
  return std::make_shared<PyBuiltin>("changed", changed, self);
}

PyValue PyLoop::call(PyWork&, const PyArgs& args) {
  if (!recursion) py_fail("The loop must have the 'recursive' marker to be called recursively.");
  if (args.positional.size() != 1) py_fail("loop() takes exactly one argument");
  return recursion(args.positional[0], depth0_ + 1);
}

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
  constexpr std::size_t kStepsPerParameter = 4, kKeywordsPerStep = 16;
  for (std::size_t i = 0; i < count; ++i) {
    state.work.step(kStepsPerParameter + keywords.size() / kKeywordsPerStep);
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
