// GEMMs of layers and their adapters on a CUDA device, against plain loops in f64.
#include "kernels/gemm.h"

#include <cstdlib>

#include "kernels/gemm_choices.h"
#include "tests/core/temp_folder.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/op_run.h"

namespace qtrain::testing {
namespace {

using ops::Transpose;
using enum ops::Transpose;

/// A column slice of a matrix, or all columns.
struct Columns {
  Array all;
  std::int64_t first = 0, count = all.shape()[1];

  std::int64_t width() const { return all.shape()[1]; }
  Tensor view() {
    Tensor part = all.tensor();
    part.data += static_cast<std::size_t>(first) * size_of(part.dtype);
    part.shape = {all.shape()[0], count};
    return part;
  }
  double get(std::int64_t row, std::int64_t column) const { return all.get(row * width() + first + column); }
};

struct Operand {
  Columns part;
  Transpose transpose = no;

  double get(std::int64_t row, std::int64_t column) const {
    return transpose == yes ? part.get(column, row) : part.get(row, column);
  }
};

struct Pair {
  Operand a, b;

  ops::Factors factors() {
    return {.a = a.part.view(),
            .b = b.part.view(),
            .transpose_a = a.transpose,
            .transpose_b = b.transpose,
            .a_stride = a.part.width(),
            .b_stride = b.part.width()};
  }
};

/// C = or += alpha * (the sum of up to four GEMMs) + bias.
struct Sum {
  std::vector<Pair> pairs;
  double alpha = 1;
  std::optional<Columns> bias = {};  ///< of one row

  ops::Gemm gemm(Sink c, std::int64_t stride) {
    const ops::Factors f = pairs.front().factors();
    ops::Gemm g{.c = c,
                .a = f.a,
                .b = f.b,
                .transpose_a = f.transpose_a,
                .transpose_b = f.transpose_b,
                .alpha = alpha,
                .a_stride = f.a_stride,
                .b_stride = f.b_stride,
                .c_stride = stride};
    if (bias) g.bias = bias->view().reshaped({bias->count});
    for (std::size_t i = 1; i < pairs.size(); ++i) g.added.at(i - 1) = pairs[i].factors();
    return g;
  }
  double get(std::int64_t row, std::int64_t column) {
    double sum = 0;
    for (Pair& p : pairs)
      for (std::int64_t k = 0, depth = p.factors().depth(); k < depth; ++k) sum += p.a.get(row, k) * p.b.get(k, column);
    return alpha * sum + (bias ? bias->get(0, column) : 0);
  }
};

/// Starts without algorithms chosen by earlier runs, so each test autotunes.
class OwnCache {
 public:
  OwnCache() : before_(std::getenv(kVariable) ? std::getenv(kVariable) : "") {
    setenv(kVariable, folder_.path().c_str(), 1);
  }
  ~OwnCache() { before_.empty() ? unsetenv(kVariable) : setenv(kVariable, before_.c_str(), 1); }
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;

 private:
  static constexpr const char* kVariable = "XDG_CACHE_HOME";
  std::string before_;
  TempFolder folder_;
};

class CudaGemm : public ::testing::Test {
 protected:
  /// Memory next to the result must not change. Each GEMM runs twice: newly planned, and with the cached plan.
  void expect(Sum sum, const Columns& before, const std::string& what) {
    std::vector<double> gemm;
    for (std::int64_t i = 0; i < before.all.size(); ++i) {
      const std::int64_t column = i % before.width() - before.first;
      const bool inside = column >= 0 && column < before.count;
      gemm.push_back(inside ? sum.get(i / before.width(), column) : std::nan(""));
    }
    const OnDevice device;
    for (const Sink::Mode mode :
         {Sink::Mode::store, Sink::Mode::store, Sink::Mode::accumulate, Sink::Mode::accumulate}) {
      Columns c = before;
      ops::gemm(ctx_, sum.gemm({c.view(), mode}, c.width()));
      ctx_.synchronize();
      std::vector<double> want = before.all.values();
      for (std::size_t i = 0; i < want.size(); ++i)
        if (!std::isnan(gemm[i])) want[i] = gemm[i] + (mode == Sink::Mode::accumulate ? want[i] : 0);
      expect_close(c.all.values(), want, tolerance_of(c.all.dtype()), what);
    }
  }

  /// GEMMs whose algorithms were chosen.
  std::size_t chosen() { return gemm_choices(ctx_)->used().at("choices").size(); }

  const OwnCache cache_;
  Ctx ctx_{kCuda, MatmulPrecision::bf16, 1};
};

std::string name(DType operands, DType result, const Shape& mnk) {
  std::string s = std::string(name_of(operands)) + " to " + std::string(name_of(result));
  for (int i = 0; i < 3; ++i) s += " " + std::to_string(mnk[i]);
  return s;
}

TEST_F(CudaGemm, TakesEveryOrientationTypeAndShape) {
  for (const Shape& n : {Shape{19, 11, 23}, Shape{64, 48, 32}, Shape{1, 64, 16}, Shape{33, 1, 8}, Shape{5, 7, 1}})
    for (const DType d : {DType::bf16, DType::f16})
      for (const DType c : {d, DType::f32})
        for (const Transpose ta : {no, yes})
          for (const Transpose tb : {no, yes}) {
            const Array a = random(d, ta == yes ? Shape{n[2], n[0]} : Shape{n[0], n[2]}, 1),
                        b = random(d, tb == yes ? Shape{n[1], n[2]} : Shape{n[2], n[1]}, 2);
            expect({.pairs = {{{{a}, ta}, {{b}, tb}}}, .alpha = -0.5, .bias = Columns{random(c, {1, n[1]}, 3)}},
                   {random(c, {n[0], n[1]}, 4)}, name(d, c, n) + (ta == yes ? " ta" : "") + (tb == yes ? " tb" : ""));
          }
}

TEST_F(CudaGemm, AddsABiasOfAnotherType) {
  const Array a = random(DType::bf16, {19, 24}, 1), b = random(DType::bf16, {24, 16}, 2);
  for (const DType d : {DType::f32, DType::bf16})
    for (const DType c : {DType::f32, DType::bf16})
      expect({.pairs = {{{{a}, no}, {{b}, no}}}, .bias = Columns{random(d, {1, 16}, 3)}}, {random(c, {19, 16}, 4)},
             std::string(name_of(d)) + " added to " + std::string(name_of(c)));
}

// Operands combined with a bf16 operand are rounded to bf16.
TEST_F(CudaGemm, TakesOperandsInF32) {
  const Array x = random(DType::f32, {37, 40}, 1), w = random(DType::f32, {24, 40}, 2);
  expect({{{{{x.as(DType::bf16)}}, {{w}, yes}}}}, {random(DType::bf16, {37, 24}, 3)}, "weight");
  expect({{{{{x}}, {{w.as(DType::bf16)}, yes}}}}, {random(DType::f32, {37, 24}, 3)}, "input");
  expect({{{{{x, 7, 16}}, {{w.as(DType::bf16), 24, 16}, yes}}}}, {random(DType::f32, {37, 24}, 3)}, "columns");
  expect({{{{{x}}, {{w}, yes}}}}, {random(DType::f32, {37, 24}, 3)}, "both");
}

// With alignments for vectors of eight, four, two and one elements, for the bias as well.
TEST_F(CudaGemm, ReadsAndWritesColumnsOfWiderMatrices) {
  for (const DType c : {DType::bf16, DType::f32})
    for (const std::int64_t first : {8, 4, 2, 1}) {
      const Columns a{random(DType::bf16, {32, 48}, 1), first, 16}, b{random(DType::bf16, {40, 64}, 2), first, 16},
          place{random(c, {32, 72}, 3), first, 40};
      const Columns bias{random(c, {1, 64}, 4), first, 40};
      expect({.pairs = {{{a}, {b, yes}}}, .bias = bias}, place, std::to_string(first) + " " + std::string(name_of(c)));
    }
}

TEST_F(CudaGemm, AddsGemms) {
  for (const DType c : {DType::bf16, DType::f32}) {
    const auto columns = [](std::int64_t rows, std::int64_t first, std::uint64_t seed) {
      return Columns{random(DType::bf16, {rows, 48}, seed), first, 16};
    };
    Sum sum{.pairs = {{{{random(DType::bf16, {24, 64}, 1)}}, {{random(DType::bf16, {32, 64}, 2)}, yes}},
                      {{columns(24, 0, 3)}, {columns(32, 16, 4), yes}},
                      {{columns(16, 8, 5)}, {{random(DType::f32, {16, 32}, 6)}}},
                      {{{random(DType::bf16, {5, 24}, 7)}, yes}, {{random(DType::bf16, {5, 32}, 8)}}}},
            .alpha = 0.5,
            .bias = Columns{random(c, {1, 32}, 9)}};
    sum.pairs[2].a = {columns(24, 32, 5)};
    expect(sum, {random(c, {24, 48}, 10), 8, 32}, std::string(name_of(c)));
  }
}

// Adapters of three layers that read the same input: A contiguous, results concatenated.
TEST_F(CudaGemm, ServesStackedAdapters) {
  constexpr std::int64_t kTokens = 72, kIn = 64, kOut = 96, kRank = 16, kRanks = 3 * kRank;
  const Array x = random(DType::bf16, {kTokens, kIn}, 1), dy = random(DType::bf16, {kTokens, kOut}, 2),
              stack = random(DType::f32, {kRanks, kIn}, 3), b = random(DType::f32, {kOut, kRank}, 4),
              side_by_side = random(DType::bf16, {kTokens, kRanks}, 5);
  expect({{{{{x}}, {{stack}, yes}}}, 2.0}, {side_by_side}, "x A");
  expect({{{{{x}}, {{random(DType::bf16, {kOut, kIn}, 6)}, yes}}, {{{side_by_side, kRank, kRank}}, {{b}, yes}}}},
         {random(DType::bf16, {kTokens, kOut}, 7)}, "y");
  expect({{{{{dy}}, {{b}}}}, 2.0}, {side_by_side, kRank, kRank}, "gradient of x A");
  expect({{{{{dy}, yes}, {{side_by_side, kRank, kRank}}}}}, {random(DType::f32, {kOut, kRank}, 8)}, "gradient of B");
  expect({{{{{side_by_side}, yes}, {{x}}}}}, {random(DType::f32, {kRanks, kIn}, 9)}, "gradient of A");
  expect({{{{{dy}}, {{random(DType::bf16, {kOut, kIn}, 6)}}}, {{{side_by_side}}, {{stack}}}}},
         {random(DType::bf16, {kTokens, kIn}, 10)}, "gradient of x");
}

// More than 256 rows: on a GPU, algorithms are autotuned, those of accumulating GEMMs in separate memory. The other
// size is in the same class and uses the same choice.
TEST_F(CudaGemm, TriesGemmsOfManyRows) {
  for (const std::int64_t rows : {300, 310}) {
    const Array x = random(DType::bf16, {rows, 40}, 1), w = random(DType::bf16, {24, 40}, 2);
    for (const DType c : {DType::bf16, DType::f32}) {
      const std::string what = std::to_string(rows) + " " + std::string(name_of(c));
      const Sum sum{.pairs = {{{{x}}, {{w}, yes}}}, .bias = Columns{random(c, {1, 24}, 3)}};
      expect(sum, {random(c, {rows, 24}, 4)}, what);
      expect(sum, {random(c, {rows, 56}, 5), 8, 24}, what + ", columns of a wider result");
    }
  }
  EXPECT_EQ(chosen(), 8u) << "one choice for each of two types, dense or not, stored or added";
}

// Large weights with 300 tokens: columns of a wider matrix of more than 8 MiB; on a GPU also more than the 64 MiB for
// autotuning, so that only some of the rows are used for it.
TEST_F(CudaGemm, AddsToLargeGradients) {
  constexpr std::int64_t kTokens = 300, kBeside = 24, kFirst = 8;
  std::vector<Shape> sizes{{1100, 2000}};
  if (!cuda_info().emulated) sizes.push_back({4200, 4100});  // takes the harness too long
  for (const Shape& n : sizes) {
    const Columns before{random(DType::f32, {n[0], n[1] + kBeside}, 1), kFirst, n[1]};
    Sum sum{{{{{random(DType::bf16, {kTokens, n[0]}, 2)}, yes}, {{random(DType::bf16, {kTokens, n[1]}, 3)}}}}};
    Columns c = before;
    {
      const OnDevice device;
      Sum there = sum;
      for (int run = 0; run < 2; ++run) ops::gemm(ctx_, there.gemm(accumulate(c.view()), c.width()));
      ctx_.synchronize();
      c.all.bytes();
    }
    std::vector<double> got, want;
    for (std::int64_t i = 0; i < n[0]; i += 37)
      for (std::int64_t j = 0; j < c.width(); j += j < 2 * kFirst || j >= n[1] ? 1 : 53) {
        const bool inside = j >= kFirst && j < kFirst + n[1];
        got.push_back(c.all.get(i * c.width() + j));
        want.push_back(before.all.get(i * c.width() + j) + (inside ? 2 * sum.get(i, j - kFirst) : 0));
      }
    expect_close(got, want, tolerance_of(DType::f32), to_string(n));
  }
  EXPECT_EQ(chosen(), sizes.size());
}

// 256 + 1 - 256 is 1, but 0 if the product is rounded to bfloat16 before the residual is added. Each GEMM runs twice,
// as above, and has more rows than are autotuned without a trial.
TEST_F(CudaGemm, RoundsTheSumWithAResidualOnce) {
  constexpr std::int64_t kRows = 300, kColumns = 32;
  for (const DType d : {DType::bf16, DType::f16, DType::f32}) {
    Array a(d, {kRows, 2}), b(d, {kColumns, 2}), bias(d, {kColumns}), residual(d, {kRows, kColumns}),
        left = random(d, {kRows, 3}, 1), right(d, {kColumns, 3});
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, i % 2 == 0 ? 256 : 1);
    for (std::int64_t i = 0; i < b.size(); ++i) b.set(i, 1);
    for (std::int64_t i = 0; i < bias.size(); ++i) bias.set(i, static_cast<double>(i % 3));
    for (std::int64_t i = 0; i < residual.size(); ++i) residual.set(i, -256);
    for (std::int64_t i = 0; i < right.size(); ++i) right.set(i, 0);
    const OnDevice device;
    for (int run = 0; run < 2; ++run) {
      Array c = random(d, {kRows, kColumns}, 2);
      ops::gemm(ctx_, {.c = store(c),
                       .a = a,
                       .b = b,
                       .transpose_b = yes,
                       .bias = bias,
                       .residual = residual,
                       .added = {{{.a = left, .b = right, .transpose_b = yes}}}});
      ctx_.synchronize();
      for (std::int64_t i = 0; i < c.size(); ++i)
        ASSERT_EQ(c.get(i), 1 + i % kColumns % 3) << name_of(d) << " at " << i;
    }
  }
}

TEST_F(CudaGemm, HasZerosAndABiasWithoutAnInnerDimension) {
  const Array a(DType::bf16, {6, 0}), b(DType::bf16, {9, 0});
  expect({.pairs = {{{{a}}, {{b}, yes}}}, .bias = Columns{random(DType::f32, {1, 9}, 1)}},
         {random(DType::f32, {6, 20}, 2), 3, 9}, "bias");
  expect({{{{{a}}, {{b}, yes}}}}, {random(DType::bf16, {6, 20}, 2), 3, 9}, "nothing");
  Array c(DType::bf16, {6, 9}), residual = random(DType::bf16, {6, 9}, 3), no_rows = a, no_columns = b;
  const OnDevice device;
  ops::gemm(ctx_, {.c = store(c), .a = no_rows, .b = no_columns, .transpose_b = yes, .residual = residual});
  ctx_.synchronize();
  EXPECT_EQ(c.values(), residual.values());
}

}  // namespace
}  // namespace qtrain::testing
