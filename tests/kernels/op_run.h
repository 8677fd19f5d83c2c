#pragma once
#include <algorithm>

#include "tests/kernels/op_cases.h"

namespace qtrain::testing {

/// |result - reference| <= absolute + relative * |reference| + scaled * (largest |reference|).
struct Tolerance {
  double absolute, relative, scaled;
};
/// One table for all ops. Inputs are standard normal and equal in all dtypes (bf16 values).
inline Tolerance tolerance_of(DType d) {
  switch (d) {
    case DType::f64: return {1e-11, 1e-11, 0};   // formula against kernel: only the order of summation differs
    case DType::f32: return {2e-6, 1e-5, 2e-6};  // sums of up to 1,536 terms and 151,936 exponentials in f32
    case DType::f16: return {1e-3, 4e-3, 2e-3};  // the same with 11 bits
    default: return {4e-3, 2e-2, 1e-2};          // results rounded to 8 bits, and y is rounded before its gradient
  }
}
inline double largest(const std::vector<double>& v) {
  double m = 0;
  for (const double x : v) m = std::max(m, std::abs(x));
  return m;
}

inline void expect_close(const std::vector<double>& result, const std::vector<double>& reference, const Tolerance& t,
                         const std::string& what) {
  ASSERT_EQ(result.size(), reference.size()) << what;
  const double floor = t.absolute + t.scaled * largest(reference);
  for (std::size_t i = 0; i < result.size(); ++i)
    ASSERT_LE(std::abs(result[i] - reference[i]), floor + t.relative * std::abs(reference[i]))
        << what << "[" << i << "] is " << result[i] << ", not " << reference[i];
}

inline Array drawn(const OpCase& op, DType d, const Shape& shape, std::uint64_t seed) {
  return op.digits == Digits::of_bf16 ? random(d, shape, seed) : irregular(d, shape, seed);
}

inline Arrays inputs_of(const OpCase& op, DType d) {
  Arrays in;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    in.push_back(drawn(op, op.inputs[i].storage == Storage::same ? d : arithmetic_of(d), op.inputs[i].shape, i + 1));
  return in;
}

inline Array dy_of(const OpCase& op, DType d, const Array& y) {
  if (!op.equal_dy) return drawn(op, d, y.shape(), 99);
  Array dy(d, y.shape());
  for (std::int64_t i = 0; i < dy.size(); ++i) dy.set(i, 0.25);
  return dy;
}

struct Pass {
  Arrays inputs, outputs, gradients;
};
/// Runs forward and backward with every gradient in `mode`, on destinations that hold random values.
inline Pass run(const OpCase& op, DType d, Ctx& ctx, Sink::Mode mode) {
  Pass p{.inputs = inputs_of(op, d)};
  p.outputs = op.forward(ctx, d, p.inputs);
  Array dy = dy_of(op, d, p.outputs[0]);
  std::vector<Sink> sinks;
  p.gradients.reserve(p.inputs.size());
  for (std::size_t i = 0; i < p.inputs.size(); ++i) {
    p.gradients.push_back(random(p.inputs[i].dtype(), op.inputs[i].shape, 50 + i));
    sinks.push_back({p.gradients.back().tensor(), mode});
  }
  op.backward(ctx, d, {p.inputs, p.outputs, dy, sinks});
  return p;
}

}  // namespace qtrain::testing
