#include "text/template/jinja/namespace.h"

#include <algorithm>

#include "text/template/python/repr.h"

namespace qtrain {
namespace {

constexpr int kMaxChainInside = 8;            // depth of generators; namespaces may contain each other besides
constexpr std::size_t kMaxAttributes = 1000;  // attributes are searched linearly

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

}  // namespace qtrain
