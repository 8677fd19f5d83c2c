#include "text/template/python/functions.h"

#include <algorithm>

namespace qtrain {

PyBound::PyBound(std::string_view function, const PyArgs& args, std::initializer_list<std::string_view> parameters,
                 std::size_t required)
    : function_(function), values_(parameters.size(), nullptr) {
  if (args.positional.size() > parameters.size())
    py_fail(function_ + "() takes at most " + std::to_string(parameters.size()) + " arguments, got " +
            std::to_string(args.positional.size()));
  for (std::size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.keywords) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) py_fail(function_ + "() got an unexpected keyword argument '" + name + "'");
    const auto i = static_cast<std::size_t>(found - parameters.begin());
    if (values_[i]) py_fail(function_ + "() got multiple values for argument '" + name + "'");
    values_[i] = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i])
      py_fail(function_ + "() missing required argument '" + std::string(*(parameters.begin() + i)) + "'");
}

PyInt PyBound::integer(std::size_t i, PyInt otherwise) const {
  if (!values_[i]) return otherwise;
  const auto held = values_[i]->integer();
  if (!held) py_fail(function_ + "(): '" + py_type_name(*values_[i]) + "' object cannot be interpreted as an integer");
  return *held;
}

const std::string& PyBound::text(std::size_t i) const {
  if (!values_[i] || !values_[i]->is_string())
    py_fail(function_ + "() argument must be str, not " + (values_[i] ? py_type_name(*values_[i]) : "absent"));
  return values_[i]->text();
}

std::optional<std::string_view> PyBound::optional_text(std::size_t i) const {
  if (!values_[i] || values_[i]->is(PyKind::none)) return std::nullopt;
  return text(i);
}

std::optional<PyInt> PyBound::optional_integer(std::size_t i) const {
  if (!values_[i] || values_[i]->is(PyKind::none)) return std::nullopt;
  return integer(i);
}

std::int64_t py_clamp(PyInt value) {
  return static_cast<std::int64_t>(std::clamp<PyInt>(value, INT64_MIN, INT64_MAX));
}

}  // namespace qtrain
