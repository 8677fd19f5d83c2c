#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/template/python/value.h"

namespace qtrain {

/// dict.items(), keys(), values()
class PyView : public PyObject {
 public:
  enum class Part : std::uint8_t { items, keys, values };
  PyView(PyValue dict, Part part) : PyObject(dict.chain()), dict_(std::move(dict)), part_(part) {}
  std::string_view type_name() const override;
  std::string repr(PyWork& work) override;
  PyNext iterate(PyWork&) override;
  void take_apart(PyItems& into) override { into.push_back(std::move(dict_)); }
  std::optional<std::size_t> length() override { return dict_.dict().entries.size(); }

 private:
  PyValue at(std::size_t index) const;
  PyValue dict_;
  Part part_;
};

}  // namespace qtrain
