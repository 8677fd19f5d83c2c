#include "text/template/python/range.h"

#include <algorithm>

#include "text/template/python/error.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

constexpr PyInt kMaxRange = 100'000;  // limit of the sandbox

}  // namespace

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

}  // namespace qtrain
