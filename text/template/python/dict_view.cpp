#include "text/template/python/dict_view.h"

#include "text/template/python/repr.h"

namespace qtrain {

std::string_view PyView::type_name() const {
  return part_ == Part::items ? "dict_items" : part_ == Part::keys ? "dict_keys" : "dict_values";
}

PyValue PyView::at(std::size_t index) const {
  const auto& [key, value] = dict_.dict().entries[index];
  return part_ == Part::items ? PyValue::tuple({key, value}) : part_ == Part::keys ? key : value;
}

std::string PyView::repr(PyWork& work) {
  PyItems items;
  work.make(dict_.dict().entries.size() * sizeof(PyValue));
  for (std::size_t i = 0; i < dict_.dict().entries.size(); ++i) items.push_back(at(i));
  return std::string(type_name()) + "(" + py_repr(work, PyValue::list(std::move(items))) + ")";
}

PyNext PyView::iterate(PyWork&) {
  return [view = *this, i = std::size_t{0}]() mutable -> std::optional<PyValue> {
    return i < view.dict_.dict().entries.size() ? std::optional(view.at(i++)) : std::nullopt;
  };
}

}  // namespace qtrain
