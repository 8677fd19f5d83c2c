#include "kernels/gemm.h"

#include "tests/kernels/each_isa.h"
#include "tests/kernels/support.h"

namespace qtrain {
namespace {

using ops::Transpose;
using testing::Array;
using testing::random;

struct Shape3 {
  std::int64_t M, N, K;
};
struct Case {
  Shape3 n;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  Transpose ta = Transpose::no, tb = Transpose::no;
  bool bias = false;
  Sink::Mode mode = Sink::Mode::store;
  double alpha = 1;
};

std::string describe(const Case& c) {
  return "M=" + std::to_string(c.n.M) + " N=" + std::to_string(c.n.N) + " K=" + std::to_string(c.n.K) + " " +
         std::string(name_of(c.a)) + " x " + std::string(name_of(c.b)) + " -> " + std::string(name_of(c.c)) +
         (c.ta == Transpose::yes ? " ta" : "") + (c.tb == Transpose::yes ? " tb" : "") + (c.bias ? " bias" : "") +
         (c.mode == Sink::Mode::accumulate ? " accumulate" : "");
}

struct Inputs {
  Array a, b, bias, c;

  explicit Inputs(const Case& t)
      : a(random(t.a, t.ta == Transpose::yes ? Shape(t.n.K, t.n.M) : Shape(t.n.M, t.n.K), 1)),
        b(random(t.b, t.tb == Transpose::yes ? Shape(t.n.N, t.n.K) : Shape(t.n.K, t.n.N), 2)),
        bias(random(DType::f32, {t.n.N}, 3)),
        c(random(t.c, {t.n.M, t.n.N}, 4)) {}
};

Array multiply(Ctx& ctx, const Case& t, Inputs in) {
  ops::gemm(ctx, {.c = {in.c, t.mode},
                  .a = in.a,
                  .b = in.b,
                  .transpose_a = t.ta,
                  .transpose_b = t.tb,
                  .alpha = t.alpha,
                  .bias = t.bias ? ConstTensor(in.bias) : ConstTensor{}});
  return in.c;
}

/// The same GEMM in f64 with plain indices, and the sum of magnitudes that bounds rounding.
void expect_gemm(const Case& t, const Array& result) {
  const Inputs in(t);
  const std::vector<double> a = in.a.values(), b = in.b.values();
  const auto [M, N, K] = t.n;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const double unit = t.c == DType::bf16 ? 0x1p-8 : 0x1p-23;
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t j = 0; j < N; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        const double p = a[at(t.ta == Transpose::yes ? k * M + i : i * K + k)] *
                         b[at(t.tb == Transpose::yes ? j * K + k : k * N + j)];
        sum += p;
        magnitude += std::abs(p);
      }
      double want = t.alpha * sum + (t.bias ? in.bias.get(j) : 0);
      if (t.mode == Sink::Mode::accumulate) want += in.c.get(i * N + j);
      const double bound = unit * std::abs(want) + 0x1p-22 * (std::abs(t.alpha) * magnitude + 3);
      if (!(std::abs(result.get(i * N + j) - want) <= bound)) ++wrong;
    }
  EXPECT_EQ(wrong, 0) << describe(t);
}

class GemmIsa : public testing::IsaTest {
 protected:
  // Operands hold bf16 values, so that both precisions multiply the same numbers.
  Ctx ctx_{{}, testing::has_bf16(GetParam()) ? MatmulPrecision::bf16 : MatmulPrecision::storage, 1};
};

TEST_P(GemmIsa, AllShapesAndOrientations) {
  const std::vector<Shape3> shapes{{1, 1, 1},     {1, 576, 64},   {2, 3, 7},     {5, 49, 33},    {8, 16, 100},
                                   {9, 17, 1},    {13, 95, 2},    {16, 70, 129}, {64, 16, 576},  {65, 193, 31},
                                   {16, 64, 801}, {31, 33, 1600}, {100, 4, 770}, {515, 51, 1537}};
  for (const Shape3& n : shapes)
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const Case t{.n = n, .ta = ta, .tb = tb};
        expect_gemm(t, multiply(ctx_, t, Inputs(t)));
      }
}

TEST_P(GemmIsa, AllDtypesAndEpilogues) {
  for (const DType a : {DType::f32, DType::bf16})
    for (const DType b : {DType::f32, DType::bf16})
      for (const DType c : {DType::f32, DType::bf16, DType::f64})
        for (const Transpose tb : {Transpose::no, Transpose::yes})
          for (const std::int64_t M : {3, 29})
            for (const Sink::Mode mode : {Sink::Mode::store, Sink::Mode::accumulate}) {
              const Case t{
                  .n = {M, 21, 37}, .a = a, .b = b, .c = c, .tb = tb, .bias = true, .mode = mode, .alpha = -0.5};
              expect_gemm(t, multiply(ctx_, t, Inputs(t)));
            }
}

TEST_P(GemmIsa, SameBitsForAnyNumberOfThreads) {
  for (const Shape3& n : std::vector<Shape3>{{3, 301, 70}, {200, 150, 1700}, {700, 97, 40}})
    for (const Transpose t : {Transpose::no, Transpose::yes}) {
      const Case c{.n = n, .ta = t, .tb = t};
      Ctx one({}, ctx_.matmul(), 1);
      const Array want = multiply(one, c, Inputs(c));
      for (const int threads : {2, 3, 5}) {
        Ctx many({}, ctx_.matmul(), threads);
        EXPECT_EQ(multiply(many, c, Inputs(c)).bytes(), want.bytes()) << describe(c) << " threads " << threads;
      }
    }
}

TEST_P(GemmIsa, NoInnerDimensionLeavesBiasOnly) {
  for (const std::int64_t M : {2, 20}) {
    const Case t{.n = {M, 19, 0}, .tb = Transpose::yes, .bias = true};
    const Array c = multiply(ctx_, t, Inputs(t));
    Inputs in(t);
    for (std::int64_t i = 0; i < c.size(); ++i) EXPECT_EQ(c.get(i), in.bias.get(i % 19));
  }
}

TEST_P(GemmIsa, NanReachesItsRowAndColumnOnly) {
  for (const std::int64_t M : {4, 20}) {
    const Case t{.n = {M, 50, 35}, .tb = Transpose::yes};
    Inputs in(t);
    in.a.set(2 * 35 + 34, std::nan(""));
    const Array c = multiply(ctx_, t, in);
    for (std::int64_t i = 0; i < c.size(); ++i) EXPECT_EQ(std::isnan(c.get(i)), i / 50 == 2) << i;
  }
}

/// A · B, and the gradients of a layer with an adapter: a wide inner dimension, then narrow ones that are column slices
/// of a wider matrix, in every orientation.
struct Sum {
  static constexpr std::int64_t kWide = 40;  // columns of the matrices that operands are slices of
  std::int64_t M, N;
  DType type = DType::f32;
  Array a = random(type, {M, 1551}, 1), b = random(type, {N, 1551}, 2), a1 = random(type, {M, kWide}, 3),
        b1 = random(type, {N, kWide}, 4), a2 = random(type, {21, M}, 5), b2 = random(type, {21, N}, 6);

  static ConstTensor columns(Array& t, std::int64_t first, std::int64_t count) {
    ConstTensor part = t;
    part.data += static_cast<std::size_t>(first) * size_of(part.dtype);
    part.shape = {t.shape()[0], count};
    return part;
  }
  ops::Gemm gemm(Sink c) {
    return {.c = c,
            .a = a,
            .b = b,
            .transpose_b = Transpose::yes,
            .alpha = 0.5,
            .added = {{{.a = columns(a1, 3, 17),
                        .b = columns(b1, 9, 17),
                        .transpose_b = Transpose::yes,
                        .a_stride = kWide,
                        .b_stride = kWide},
                       {.a = a2, .b = b2, .transpose_a = Transpose::yes}}}};
  }
  double want(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t k = 0; k < 1551; ++k) sum += a.get(i * 1551 + k) * b.get(j * 1551 + k);
    for (std::int64_t k = 0; k < 17; ++k) sum += a1.get(i * kWide + 3 + k) * b1.get(j * kWide + 9 + k);
    for (std::int64_t k = 0; k < 21; ++k) sum += a2.get(k * M + i) * b2.get(k * N + j);
    return 0.5 * sum;
  }
};

TEST_P(GemmIsa, SumsOfGemmsGoToColumnsOfAWiderMatrix) {
  constexpr std::int64_t kBefore = 2, kWidth = 70;
  for (const std::int64_t M : {3, 37})
    for (const DType type : {DType::f32, DType::bf16}) {
      Sum sum{.M = M, .N = 53, .type = type};
      const Array before = random(DType::f32, {M, kWidth}, 7);
      for (const Sink::Mode mode : {Sink::Mode::store, Sink::Mode::accumulate}) {
        Array wide = before;
        Tensor c = wide.tensor();
        c.data += kBefore * sizeof(float);
        c.shape = {M, sum.N};
        ops::Gemm g = sum.gemm({c, mode});
        g.c_stride = kWidth;
        ops::gemm(ctx_, g);
        for (std::int64_t i = 0; i < M * kWidth; ++i) {
          const std::int64_t j = i % kWidth - kBefore;
          const bool part = j >= 0 && j < sum.N;
          if (!part) {
            ASSERT_EQ(wide.get(i), before.get(i)) << "beside the result";
            continue;
          }
          const double added = mode == Sink::Mode::accumulate ? before.get(i) : 0;
          ASSERT_NEAR(wide.get(i), sum.want(i / kWidth, j) + added, 2e-4) << M << " at " << i;
        }
      }
    }
}

// 256 + 1 - 256 is 1, but 0 if the product is rounded to bfloat16 before the residual is added.
TEST_P(GemmIsa, RoundsTheSumWithAResidualOnce) {
  for (const DType d : {DType::f32, DType::bf16})
    for (const std::int64_t rows : {3, 40}) {
      Array a(d, {rows, 2}), b(d, {16, 2}), c(d, {rows, 16}), residual(d, {rows, 16});
      for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, i % 2 == 0 ? 256 : 1);
      for (std::int64_t i = 0; i < b.size(); ++i) b.set(i, 1);
      for (std::int64_t i = 0; i < residual.size(); ++i) residual.set(i, -256);
      ops::gemm(ctx_, {.c = store(c), .a = a, .b = b, .transpose_b = Transpose::yes, .residual = residual});
      for (const double v : c.values()) ASSERT_EQ(v, 1) << name_of(d);
    }
}

INSTANTIATE_TEST_SUITE_P(Isa, GemmIsa, ::testing::ValuesIn(testing::kIsas), testing::isa_name);

TEST(Gemm, DoubleIsExactToDouble) {
  Ctx ctx;
  const Case t{.n = {7, 11, 29},
               .a = DType::f64,
               .b = DType::f64,
               .c = DType::f64,
               .tb = Transpose::yes,
               .bias = true,
               .mode = Sink::Mode::accumulate,
               .alpha = 1.5};
  const Inputs in(t);
  const Array c = multiply(ctx, t, in);
  for (std::int64_t i = 0; i < 7; ++i)
    for (std::int64_t j = 0; j < 11; ++j) {
      double want = in.bias.get(j) + in.c.get(i * 11 + j);
      for (std::int64_t k = 0; k < 29; ++k) want += 1.5 * in.a.get(i * 29 + k) * in.b.get(j * 29 + k);
      EXPECT_NEAR(c.get(i * 11 + j), want, 1e-12);
    }
}

}  // namespace
}  // namespace qtrain
