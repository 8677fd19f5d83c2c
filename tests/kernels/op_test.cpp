#include <algorithm>

#include "tests/kernels/op_cases.h"

namespace qtrain::testing {
namespace {

/// |result - reference| <= absolute + relative * |reference| + scaled * (largest |reference|).
struct Tolerance {
  double absolute, relative, scaled;
};
/// One table for all ops. Inputs are standard normal and equal in all dtypes (bf16 values).
Tolerance tolerance_of(DType d) {
  switch (d) {
    case DType::f64: return {1e-11, 1e-11, 0};   // formula against kernel: only the order of summation differs
    case DType::f32: return {2e-6, 1e-5, 2e-6};  // sums of up to 1,536 terms and 151,936 exponentials in f32
    default: return {4e-3, 2e-2, 1e-2};          // results rounded to 8 bits, and y is rounded before its gradient
  }
}
/// Finite differences of f64: the error is about step^2 times the third derivative, and 1e-16 / step per term.
constexpr double kStep = 1e-5;
constexpr Tolerance kDifference{2e-8, 1e-6, 1e-8};

double largest(const std::vector<double>& v) {
  double m = 0;
  for (const double x : v) m = std::max(m, std::abs(x));
  return m;
}

void expect_close(const std::vector<double>& result, const std::vector<double>& reference, const Tolerance& t,
                  const std::string& what) {
  ASSERT_EQ(result.size(), reference.size()) << what;
  const double floor = t.absolute + t.scaled * largest(reference);
  for (std::size_t i = 0; i < result.size(); ++i)
    ASSERT_LE(std::abs(result[i] - reference[i]), floor + t.relative * std::abs(reference[i]))
        << what << "[" << i << "] is " << result[i] << ", not " << reference[i];
}

Arrays inputs_of(const OpCase& op, DType d) {
  Arrays in;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    in.push_back(random(op.inputs[i].storage == Storage::same ? d : arithmetic_of(d), op.inputs[i].shape, i + 1));
  return in;
}

Array dy_of(const OpCase& op, DType d, const Array& y) {
  if (!op.equal_dy) return random(d, y.shape(), 99);
  Array dy(d, y.shape());
  for (std::int64_t i = 0; i < dy.size(); ++i) dy.set(i, 0.25);
  return dy;
}

struct Pass {
  Arrays inputs, outputs, gradients;
};
/// Forward and backward with every gradient in `mode`, onto destinations that hold random values before.
Pass run(const OpCase& op, DType d, Ctx& ctx, Sink::Mode mode) {
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

class Op : public ::testing::TestWithParam<OpCase> {
 protected:
  Ctx ctx_{{}, MatmulPrecision::storage, 1};
};

TEST_P(Op, DoubleIsTheFormula) {
  Arrays in = inputs_of(GetParam(), DType::f64);
  const Arrays copy = in;
  const Arrays out = GetParam().forward(ctx_, DType::f64, in);
  expect_close(out[0].values(), GetParam().formula(copy), tolerance_of(DType::f64), "y");
}

TEST_P(Op, GradientIsTheFiniteDifference) {
  const OpCase& op = GetParam();
  Pass p = run(op, DType::f64, ctx_, Sink::Mode::store);
  const Array dy = dy_of(op, DType::f64, p.outputs[0]);
  const auto output = [&](Arrays in) { return op.forward(ctx_, DType::f64, in)[0].values(); };
  // Differences are taken element by element: a difference of two large sums would lose digits.
  const auto slope = [&](const Arrays& up, const Arrays& down) {
    const std::vector<double> above = output(up), below = output(down);
    double sum = 0;
    for (std::size_t i = 0; i < above.size(); ++i) sum += dy.get(static_cast<std::int64_t>(i)) * (above[i] - below[i]);
    return sum / (2 * kStep);
  };
  for (std::size_t k = 0; k < p.inputs.size(); ++k) {
    std::vector<double> difference, gradient;
    const std::int64_t n = p.inputs[k].size();
    const std::int64_t step = std::max<std::int64_t>(1, n / 5 | 1);  // a sample of large inputs
    for (std::int64_t i = 0; i < n; i += step) {
      Arrays up = p.inputs, down = p.inputs;
      up[k].set(i, p.inputs[k].get(i) + kStep);
      down[k].set(i, p.inputs[k].get(i) - kStep);
      difference.push_back(slope(up, down));
      gradient.push_back(p.gradients[k].get(i));
    }
    expect_close(gradient, difference, kDifference, "d" + op.inputs[k].name);
  }
}

TEST_P(Op, FasterDtypesFollowDouble) {
  const Pass want = run(GetParam(), DType::f64, ctx_, Sink::Mode::store);
  for (const DType d : {DType::f32, DType::bf16}) {
    const Pass got = run(GetParam(), d, ctx_, Sink::Mode::store);
    const std::string dtype(name_of(d));
    for (std::size_t i = 0; i < want.outputs.size(); ++i)
      expect_close(got.outputs[i].values(), want.outputs[i].values(), tolerance_of(d),
                   dtype + " output " + std::to_string(i));
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
      expect_close(got.gradients[i].values(), want.gradients[i].values(), tolerance_of(d),
                   dtype + " d" + GetParam().inputs[i].name);
  }
}

/// Vector units have kernels of their own.
TEST_P(Op, NarrowerUnitsFollowDouble) {
  const Pass want = run(GetParam(), DType::f64, ctx_, Sink::Mode::store);
  for (const char* isa : {"avx2", "avx512"}) {
    ::setenv("QTRAIN_CPU_ISA", isa, 1);
    const Pass got = run(GetParam(), DType::f32, ctx_, Sink::Mode::store);
    ::unsetenv("QTRAIN_CPU_ISA");
    expect_close(got.outputs[0].values(), want.outputs[0].values(), tolerance_of(DType::f32), isa);
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
      expect_close(got.gradients[i].values(), want.gradients[i].values(), tolerance_of(DType::f32),
                   isa + (" d" + GetParam().inputs[i].name));
  }
}

TEST_P(Op, SinksAddOrLeaveAlone) {
  for (const DType d : {DType::f64, DType::f32}) {
    const Pass stored = run(GetParam(), d, ctx_, Sink::Mode::store);
    const Pass added = run(GetParam(), d, ctx_, Sink::Mode::accumulate);
    for (std::size_t i = 0; i < stored.gradients.size(); ++i) {
      const Array before = random(stored.gradients[i].dtype(), GetParam().inputs[i].shape, 50 + i);
      std::vector<double> want = before.values();
      for (std::int64_t j = 0; j < before.size(); ++j) want[static_cast<std::size_t>(j)] += stored.gradients[i].get(j);
      expect_close(added.gradients[i].values(), want, tolerance_of(d), "accumulated d" + GetParam().inputs[i].name);
    }
  }
  const Pass dropped = run(GetParam(), DType::f32, ctx_, Sink::Mode::discard);
  for (std::size_t i = 0; i < dropped.gradients.size(); ++i)
    EXPECT_EQ(dropped.gradients[i].bytes(),
              random(dropped.gradients[i].dtype(), GetParam().inputs[i].shape, 50 + i).bytes());
}

TEST_P(Op, SameBitsForAnyNumberOfThreads) {
  for (const DType d : {DType::f32, DType::bf16, DType::f64}) {
    Ctx one({}, MatmulPrecision::storage, 1);
    const Pass want = run(GetParam(), d, one, Sink::Mode::store);
    for (const int threads : {2, 3, 5}) {
      Ctx many({}, MatmulPrecision::storage, threads);
      const Pass got = run(GetParam(), d, many, Sink::Mode::store);
      for (std::size_t i = 0; i < want.outputs.size(); ++i)
        EXPECT_EQ(got.outputs[i].bytes(), want.outputs[i].bytes()) << threads;
      for (std::size_t i = 0; i < want.gradients.size(); ++i)
        EXPECT_EQ(got.gradients[i].bytes(), want.gradients[i].bytes()) << threads << " d" << GetParam().inputs[i].name;
    }
  }
}

/// A NaN in the first element of an input must be visible in the first output.
TEST_P(Op, NanIsNotSwallowed) {
  for (const DType d : {DType::f32, DType::bf16})
    for (std::size_t k = 0; k < GetParam().inputs.size(); ++k) {
      Arrays in = inputs_of(GetParam(), d);
      in[k].set(0, std::nan(""));
      const std::vector<double> y = GetParam().forward(ctx_, d, in)[0].values();
      EXPECT_TRUE(std::any_of(y.begin(), y.end(), [](double v) { return std::isnan(v); })) << GetParam().inputs[k].name;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Op, ::testing::ValuesIn(op_cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace qtrain::testing
