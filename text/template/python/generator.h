#pragma once
#include <memory>
#include <string_view>
#include <utility>

#include "text/template/python/value.h"

namespace qtrain {

/// Result of `map`, `select` and others: yields its items once.
class PyGenerator : public PyObject {
 public:
  PyGenerator(PyNext next, const PyValue& over, std::string_view type = "generator")
      : PyObject(over.chain() + 1), next_(std::move(next)), type_(type) {}
  std::string_view type_name() const override { return type_; }
  PyNext iterate(PyWork&) override {
    return [self = shared_from_this(), this] { return next_(); };
  }

 private:
  PyNext next_;
  std::string_view type_;
};

/// `over`: the source of the items.
inline PyValue make_generator(PyNext next, const PyValue& over, std::string_view type = "generator") {
  return std::make_shared<PyGenerator>(std::move(next), over, type);
}

}  // namespace qtrain
