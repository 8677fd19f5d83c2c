#include "text/template/py_objects.h"

#include <algorithm>

#include "text/template/py_ops.h"
#include "text/template/py_text.h"

namespace qtrain {
namespace {

constexpr PyInt kMaxRange = 100'000;  // the sandbox's

}  // namespace

PyValue make_generator(PyNext next, std::string_view type) {
  return std::make_shared<PyGenerator>(std::move(next), type);
}

PyRange::PyRange(PyInt start, PyInt stop, PyInt step) : start_(start), stop_(stop), step_(step) {
  if (step == 0) py_fail("range() arg 3 must not be zero");
  constexpr PyInt most = PyInt{1} << 64;
  if (std::max({start, stop, step}) > most || std::min({start, stop, step}) < -most)
    py_fail("range() arguments are too large");
  const PyInt span = step > 0 ? stop - start : start - stop, stride = step > 0 ? step : -step;
  const PyInt count = span > 0 ? (span + stride - 1) / stride : 0;
  if (count > kMaxRange) py_fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  count_ = static_cast<std::size_t>(count);
}

std::string PyRange::repr(PyWork&) {
  const std::string step = step_ == 1 ? "" : ", " + py_int_text(step_);
  return "range(" + py_int_text(start_) + ", " + py_int_text(stop_) + step + ")";
}

PyNext PyRange::iterate(PyWork&) {
  return [start = start_, step = step_, count = count_, at = std::size_t{0}]() mutable -> std::optional<PyValue> {
    return at < count ? std::optional<PyValue>(start + static_cast<PyInt>(at++) * step) : std::nullopt;
  };
}

std::string_view PyView::type_name() const {
  return part_ == Part::items ? "dict_items" : part_ == Part::keys ? "dict_keys" : "dict_values";
}

PyValue PyView::at(std::size_t index) const {
  const auto& [key, value] = dict_.dict().entries[index];
  return part_ == Part::items ? PyValue::tuple({key, value}) : part_ == Part::keys ? key : value;
}

std::string PyView::repr(PyWork& work) {
  PyItems items;
  for (std::size_t i = 0; i < dict_.dict().entries.size(); ++i) items.push_back(at(i));
  return std::string(type_name()) + "(" + py_repr(work, PyValue::list(std::move(items))) + ")";
}

PyNext PyView::iterate(PyWork&) {
  return [view = *this, i = std::size_t{0}]() mutable -> std::optional<PyValue> {
    return i < view.dict_.dict().entries.size() ? std::optional(view.at(i++)) : std::nullopt;
  };
}

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
  const auto found = std::find_if(attributes_.begin(), attributes_.end(), [&](auto& a) { return a.first == name; });
  if (found != attributes_.end())
    found->second = std::move(value);
  else
    attributes_.emplace_back(name, std::move(value));
}

std::string PyMacro::repr(PyWork&) {
  return "<Macro " + (stmt.name.empty() ? "anonymous" : py_quote(stmt.name)) + ">";
}

std::optional<PyValue> PyMacro::attribute(std::string_view name) {
  if (name == "name") return stmt.name.empty() ? PyValue() : PyValue(stmt.name);
  if (name == "caller") return stmt.macro.uses_caller;
  if (name == "catch_kwargs") return stmt.macro.uses_kwargs;
  if (name == "catch_varargs") return stmt.macro.uses_varargs;
  if (name != "arguments") return std::nullopt;
  return PyValue::tuple(PyItems(stmt.macro.parameters.begin(), stmt.macro.parameters.end()));
}

}  // namespace qtrain
