#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// range(start, stop, step). Throws for a step of 0 and, like Jinja's sandbox, for more than 100,000 items.
class PyRange : public PyObject {
 public:
  PyRange(PyInt start, PyInt stop, PyInt step);
  std::string_view type_name() const override { return "range"; }
  std::string repr(PyWork&) override;
  PyNext iterate(PyWork&) override;
  std::optional<std::size_t> length() override { return count_; }
  std::optional<PyValue> item(std::size_t index) override { return start_ + static_cast<PyInt>(index) * step_; }

 private:
  PyInt start_, stop_, step_;
  std::size_t count_;
};

}  // namespace qtrain
