#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// The variable `loop`.
class PyLoop : public PyObject {
 public:
  PyLoop(PyValue iterable, PyNext next, int depth0)
      : PyObject(iterable.chain() + 1), iterable_(std::move(iterable)), next_(std::move(next)), depth0_(depth0) {}
  /// Advances to the next item; none at the end.
  std::optional<PyValue> advance();
  std::string_view type_name() const override { return "LoopContext"; }
  std::string repr(PyWork&) override;
  std::optional<PyValue> attribute(std::string_view name) override;
  std::optional<std::size_t> length() override;
  bool callable() const override { return true; }
  PyValue call(PyWork&, const PyArgs& args) override;
  /// loop.cycle(...), loop.changed(...)
  PyValue cycle(const PyArgs& args) const;
  bool changed(PyWork& work, const PyArgs& args);

  /// Renders the loop for another iterable, one level deeper; empty unless the loop is recursive.
  std::function<PyValue(const PyValue& iterable, int depth0)> recursion;

 private:
  const std::optional<PyValue>& peek();
  PyValue iterable_;
  PyNext next_;
  int depth0_;
  PyInt index0_ = -1;
  std::optional<std::size_t> length_;
  std::optional<PyValue> after_, current_, before_, last_changed_;
  bool peeked_ = false;
};

}  // namespace qtrain
