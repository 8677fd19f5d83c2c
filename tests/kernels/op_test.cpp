#include "tests/kernels/each_isa.h"
#include "tests/kernels/op_run.h"

namespace qtrain::testing {
namespace {

/// Finite differences of f64: the error is about step^2 times the third derivative, and 1e-16 / step per term.
constexpr double kStep = 1e-5;
constexpr Tolerance kDifference{2e-8, 1e-6, 1e-8};

class Op : public ::testing::TestWithParam<const OpCase*> {
 protected:
  Ctx ctx_{{}, MatmulPrecision::storage, 1};
};

TEST_P(Op, DoubleIsTheFormula) {
  Arrays in = inputs_of(*GetParam(), DType::f64);
  const Arrays copy = in;
  const Arrays out = GetParam()->forward(ctx_, DType::f64, in);
  expect_close(out[0].values(), GetParam()->formula(copy), tolerance_of(DType::f64), "y");
}

TEST_P(Op, GradientIsTheFiniteDifference) {
  const OpCase& op = *GetParam();
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
  const Pass want = run(*GetParam(), DType::f64, ctx_, Sink::Mode::store);
  for (const DType d : {DType::f32, DType::bf16}) {
    const Pass got = run(*GetParam(), d, ctx_, Sink::Mode::store);
    const std::string dtype(name_of(d));
    for (std::size_t i = 0; i < want.outputs.size(); ++i)
      expect_close(got.outputs[i].values(), want.outputs[i].values(), tolerance_of(d),
                   dtype + " output " + std::to_string(i));
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
      expect_close(got.gradients[i].values(), want.gradients[i].values(), tolerance_of(d),
                   dtype + " d" + GetParam()->inputs[i].name);
  }
}

/// Each vector extension has its own kernels.
TEST_P(Op, NarrowerUnitsFollowDouble) {
  const Pass want = run(*GetParam(), DType::f64, ctx_, Sink::Mode::store);
  for (const char* isa : kIsas) {
    ::setenv("QTRAIN_CPU_ISA", isa, 1);
    const Pass got = run(*GetParam(), DType::f32, ctx_, Sink::Mode::store);
    ::unsetenv("QTRAIN_CPU_ISA");
    expect_close(got.outputs[0].values(), want.outputs[0].values(), tolerance_of(DType::f32), isa);
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
      expect_close(got.gradients[i].values(), want.gradients[i].values(), tolerance_of(DType::f32),
                   isa + (" d" + GetParam()->inputs[i].name));
  }
}

TEST_P(Op, SinksAddOrLeaveAlone) {
  for (const DType d : {DType::f64, DType::f32}) {
    const Pass stored = run(*GetParam(), d, ctx_, Sink::Mode::store);
    const Pass added = run(*GetParam(), d, ctx_, Sink::Mode::accumulate);
    for (std::size_t i = 0; i < stored.gradients.size(); ++i) {
      const Array before = random(stored.gradients[i].dtype(), GetParam()->inputs[i].shape, 50 + i);
      std::vector<double> want = before.values();
      for (std::int64_t j = 0; j < before.size(); ++j) want[static_cast<std::size_t>(j)] += stored.gradients[i].get(j);
      expect_close(added.gradients[i].values(), want, tolerance_of(d), "accumulated d" + GetParam()->inputs[i].name);
    }
  }
  const Pass dropped = run(*GetParam(), DType::f32, ctx_, Sink::Mode::discard);
  for (std::size_t i = 0; i < dropped.gradients.size(); ++i)
    EXPECT_EQ(dropped.gradients[i].bytes(),
              random(dropped.gradients[i].dtype(), GetParam()->inputs[i].shape, 50 + i).bytes());
}

TEST_P(Op, SameBitsForAnyNumberOfThreads) {
  const OpCase op = with_all_digits(*GetParam());
  for (const DType d : {DType::f32, DType::bf16, DType::f64}) {
    Ctx one({}, MatmulPrecision::storage, 1);
    const Pass want = run(op, d, one, Sink::Mode::store);
    for (const int threads : {2, 3, 5}) {
      Ctx many({}, MatmulPrecision::storage, threads);
      const Pass got = run(op, d, many, Sink::Mode::store);
      for (std::size_t i = 0; i < want.outputs.size(); ++i)
        EXPECT_EQ(got.outputs[i].bytes(), want.outputs[i].bytes()) << threads;
      for (std::size_t i = 0; i < want.gradients.size(); ++i)
        EXPECT_EQ(got.gradients[i].bytes(), want.gradients[i].bytes()) << threads << " d" << GetParam()->inputs[i].name;
    }
  }
}

/// A NaN in the first element of an input must be visible in the first output.
TEST_P(Op, NanIsNotSwallowed) {
  for (const DType d : {DType::f32, DType::bf16})
    for (std::size_t k = 0; k < GetParam()->inputs.size(); ++k) {
      Arrays in = inputs_of(*GetParam(), d);
      in[k].set(0, std::nan(""));
      const std::vector<double> y = GetParam()->forward(ctx_, d, in)[0].values();
      EXPECT_TRUE(std::any_of(y.begin(), y.end(), [](double v) { return std::isnan(v); }))
          << GetParam()->inputs[k].name;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Op, ::testing::ValuesIn(op_cases()), [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace qtrain::testing
