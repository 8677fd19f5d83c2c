// A row of a GEMM has the same bits alone and among many, because an answer must not depend on what else is decoded.
#include "kernels/elementwise.h"
#include "tests/kernels/each_isa.h"
#include "tests/kernels/quantize_cases.h"

namespace qtrain {
namespace {

using ops::Transpose;
using testing::Array;
using testing::random;

constexpr std::int64_t kMany = 23, kRank = 5, kWide = 9;

struct RowsCase {
  std::int64_t N, K;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  Transpose tb = Transpose::yes;
  Sink::Mode mode = Sink::Mode::store;
  bool adapter = false;
};

std::string describe(const RowsCase& t) {
  return "N=" + std::to_string(t.N) + " K=" + std::to_string(t.K) + " " + std::string(name_of(t.a)) + " x " +
         std::string(name_of(t.b)) + " -> " + std::string(name_of(t.c)) + (t.tb == Transpose::yes ? " tb" : "") +
         (t.mode == Sink::Mode::accumulate ? " accumulate" : "") + (t.adapter ? " adapter" : "");
}

/// A layer's operands for kMany rows; the adapter's rows are column slices of a wider matrix.
struct Layer {
  Array a, b, c, bias, lora_x, lora_b;

  explicit Layer(const RowsCase& t)
      : a(random(t.a, {kMany, t.K}, 1)),
        b(random(t.b, t.tb == Transpose::yes ? Shape(t.N, t.K) : Shape(t.K, t.N), 2)),
        c(random(t.c, {kMany, t.N}, 3)),
        bias(random(DType::f32, {t.N}, 4)),
        lora_x(random(DType::f32, {kMany, kWide}, 5)),
        lora_b(random(DType::f32, {t.N, kRank}, 6)) {}

  ops::Factors adapter(std::int64_t first, std::int64_t rows) {
    ConstTensor x = lora_x.tensor().slice(first, rows);
    x.data += 2 * sizeof(float);
    x.shape = {rows, kRank};
    return {.a = x, .b = lora_b, .transpose_b = Transpose::yes, .a_stride = kWide};
  }
};

std::vector<std::byte> rows_of(const Array& c, std::int64_t first, std::int64_t rows) {
  const std::size_t width = c.bytes().size() / kMany;
  const auto begin = c.bytes().begin() + static_cast<std::ptrdiff_t>(width) * first;
  return {begin, begin + static_cast<std::ptrdiff_t>(width) * rows};
}

/// gemm(layer, first, rows) computes rows [first, first + rows) of c. Checks that computing all rows at once gives the
/// same as any chunks.
template <class Run>
void expect_rows_stand_alone(const RowsCase& t, const Run& gemm) {
  const Layer start(t);
  Layer all = start;
  gemm(all, 0, kMany);
  for (const std::int64_t rows : {1, 2, 3, 5, 7, 8, 9, 16}) {
    const std::int64_t first = (rows * 7) % (kMany - rows + 1);
    Layer some = start;
    gemm(some, first, rows);
    ASSERT_EQ(rows_of(some.c, first, rows), rows_of(all.c, first, rows)) << describe(t) << ", " << rows << " rows";
  }
}

class GemmRows : public testing::IsaTest {
 protected:
  void expect_same_bits(const RowsCase& t) {
    for (const MatmulPrecision precision : {MatmulPrecision::storage, MatmulPrecision::bf16}) {
      Ctx ctx({}, precision, 2);
      expect_rows_stand_alone(t, [&](Layer& l, std::int64_t first, std::int64_t rows) {
        ops::Gemm g{.c = {l.c.tensor().slice(first, rows), t.mode},
                    .a = l.a.tensor().slice(first, rows),
                    .b = l.b,
                    .transpose_b = t.tb,
                    .alpha = 0.75,
                    .bias = l.bias};
        if (t.adapter) g.added[0] = l.adapter(first, rows);
        ops::gemm(ctx, g);
      });
    }
  }
};

TEST_P(GemmRows, HaveTheSameBitsAloneAndAmongMany) {
  for (const DType a : {DType::f32, DType::bf16})
    for (const DType b : {DType::f32, DType::bf16})
      for (const DType c : {DType::f32, DType::bf16})
        for (const bool adapter : {false, true}) {
          expect_same_bits({.N = 75, .K = 203, .a = a, .b = b, .c = c, .adapter = adapter});
          expect_same_bits({.N = 33, .K = 64, .a = a, .b = b, .c = c, .mode = Sink::Mode::accumulate});
          expect_same_bits({.N = 41, .K = 30, .a = a, .b = b, .c = c, .tb = Transpose::no, .adapter = adapter});
        }
}

// Sums that are computed in chunks if there are many rows.
TEST_P(GemmRows, HaveTheSameBitsInLongSums) {
  for (const DType b : {DType::f32, DType::bf16}) {
    expect_same_bits({.N = 50, .K = 1601, .b = b, .adapter = true});
    expect_same_bits({.N = 17, .K = 3300, .b = b, .adapter = true});
  }
}

/// Quantized layers are expanded for many rows, in the type they are multiplied in; for few rows their codes are read
/// directly.
class CodedGemmRows : public testing::IsaTest {
 protected:
  struct Case4 {
    testing::QuantizeCase codes;
    std::int64_t N;
    bool nested = true;
  };

  bool bf16() const { return std::string(GetParam()) == "avx512_bf16"; }

  /// `w` in 4 bits, and rows of `x`, by default those of the layer.
  void expect_same_bits(const RowsCase& t, const ops::Blocks4& w, Array* x = nullptr) {
    expect_rows_stand_alone(t, [&](Layer& l, std::int64_t first, std::int64_t rows) {
      const ConstTensor a = (x ? *x : l.a).tensor().slice(first, rows);
      const Sink to = store(l.c.tensor().slice(first, rows));
      if (rows <= ops::Gemm4::kFewRows)
        return ops::gemm4(ctx_, {.c = to, .a = a, .w = w, .bias = l.bias, .added = l.adapter(first, rows)});
      Array dense(bf16() ? DType::bf16 : DType::f32, {t.N, t.K});
      ops::dequantize4(ctx_, {.y = dense, .w = w});
      dense_gemm(l, {to, a, dense}, l.adapter(first, rows));
    });
  }
  /// Codes of all sizes with this `scale`.
  void expect_same_bits(const RowsCase& t, Array& scale, Array* x = nullptr) {
    Array codes(DType::i8, {t.N, t.K});
    for (std::int64_t i = 0; i < t.N * t.K; ++i) codes.host<std::int8_t>()[i] = static_cast<std::int8_t>(i * 37 - 5);
    expect_rows_stand_alone(t, [&](Layer& l, std::int64_t first, std::int64_t rows) {
      const ConstTensor a = (x ? *x : l.a).tensor().slice(first, rows);
      const Sink to = store(l.c.tensor().slice(first, rows));
      const ops::Factors adapter = t.adapter ? l.adapter(first, rows) : ops::Factors{};
      if (ops::GemmRows8::takes({}, rows))
        return ops::gemm_rows8(ctx_,
                               {.c = to, .a = a, .codes = codes, .scale = scale, .bias = l.bias, .added = adapter});
      Array dense(bf16() ? DType::bf16 : DType::f32, {t.N, t.K});
      ops::dequantize_rows8(ctx_, {.y = dense, .codes = codes, .scale = scale});
      dense_gemm(l, {to, a, dense}, adapter);
    });
  }
  /// So large that the smallest weights matter.
  static Array large_rows(std::int64_t K) {
    Array x = random(DType::f32, {kMany, K}, 11);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, x.get(i) * 1e34);
    return x;
  }

  Ctx ctx_{{}, bf16() ? MatmulPrecision::bf16 : MatmulPrecision::storage, 2};

 private:
  struct Dense {
    Sink c;
    ConstTensor a, b;
  };
  void dense_gemm(Layer& l, const Dense& d, const ops::Factors& adapter) {
    ops::gemm(ctx_, {.c = d.c, .a = d.a, .b = d.b, .transpose_b = Transpose::yes, .bias = l.bias, .added = {adapter}});
  }
};

TEST_P(CodedGemmRows, Of4BitsHaveTheBitsOfDenseOnes) {
  for (const Case4& c :
       {Case4{{DType::f32, 70 * 192, FourBit::nf4, 64}, 70}, Case4{{DType::f32, 70 * 192, FourBit::nf4, 64}, 70, false},
        Case4{{DType::f32, 33 * 2112, FourBit::nf4, 32}, 33}, Case4{{DType::f32, 32 * 512, FourBit::fp4, 256}, 32},
        Case4{{DType::f32, 35 * 301, FourBit::fp4, 1024}, 35}}) {
    testing::QuantizedArrays q(ctx_, c.codes);
    const RowsCase t{.N = c.N, .K = c.codes.n / c.N, .adapter = true};
    expect_same_bits(t, c.nested ? q.nested(c.codes, {t.N, t.K}) : q.plain(c.codes, {t.N, t.K}));
  }
}

TEST_P(CodedGemmRows, Of8BitsHaveTheBitsOfDenseOnes) {
  for (const RowsCase& t : {RowsCase{.N = 70, .K = 192, .adapter = true}, RowsCase{.N = 35, .K = 301}}) {
    Array scale = random(DType::f32, {t.N}, 7);
    scale.set(5, 0);
    expect_same_bits(t, scale);
  }
}

// Values just below the smallest normal number round up to it in bfloat16; vector units by themselves flush them to
// zero.
TEST_P(CodedGemmRows, OfTheSmallestValuesHaveTheBitsOfDenseOnes) {
  const RowsCase t{.N = 33, .K = 192};
  const testing::QuantizeCase c{DType::f32, t.N * t.K};
  Array x = large_rows(t.K), scale = random(DType::f32, {t.N}, 7);
  testing::QuantizedArrays q(ctx_, c);
  std::fill_n(q.absmax.host<float>() + 3, 3, 0x1.ffcp-127F);  // a column's scales
  expect_same_bits(t, q.plain(c, {t.N, t.K}), &x);
  scale.set(9, 1.7e-36);
  expect_same_bits(t, scale, &x);
}

INSTANTIATE_TEST_SUITE_P(Isa, CodedGemmRows, ::testing::ValuesIn(testing::kIsas), testing::isa_name);
INSTANTIATE_TEST_SUITE_P(Isa, GemmRows, ::testing::ValuesIn(testing::kIsas), testing::isa_name);

}  // namespace
}  // namespace qtrain
