#pragma once
#include "core/fp8.h"
#include "kernels/fp8.h"
#include "kernels/glu.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/support.h"

/// What both backends must compute when they encode operands in FP8.
namespace qtrain::testing {

/// The code nearest to a value, or the even one of two, found by comparing all finite codes of one sign.
template <class F>
std::uint8_t nearest_fp8(float value) {
  unsigned best = 0;
  const double size = std::abs(static_cast<double>(value));
  const auto distance = [&](unsigned code) {
    return std::abs(static_cast<double>(decode_fp8<F>(static_cast<std::uint8_t>(code))) - size);
  };
  for (unsigned code = 0; code < 127 && std::isfinite(decode_fp8<F>(static_cast<std::uint8_t>(code))); ++code)
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 128U : 0U));
}

struct EncodedFp8 {
  std::vector<std::uint8_t> codes;
  float scale;
};
inline EncodedFp8 encoded_fp8(Ctx& ctx, DType format, Array& x, const ops::ToFp8& how, Shape shape) {
  Array codes(DType::u8, shape), scale(DType::f32, {1});
  std::fill_n(codes.host<std::uint8_t>(), codes.size(), std::uint8_t{77});
  ops::ToFp8 op = how;
  op.codes = codes;
  op.codes.dtype = format;
  op.scale = scale;
  const Shape part = how.x.shape;
  op.x = x;
  if (part.rank == 2) op.x.shape = part;
  ops::to_fp8(ctx, op);
  ctx.synchronize();
  EncodedFp8 out{.codes = {}, .scale = static_cast<float>(scale.get(0))};
  for (const std::byte b : codes.bytes()) out.codes.push_back(std::to_integer<std::uint8_t>(b));
  return out;
}

/// Matrices, and column slices of wider ones, with rows of codes that are longer than those of the matrix.
template <class F>
void encodes_matrices(Ctx& ctx, DType d, DType format) {
  struct Case {
    std::int64_t rows, width, stride;
  };
  for (const auto& [rows, width, stride] :
       {Case{3, 16, 16}, {65, 130, 130}, {128, 72, 96}, {1, 5, 7}, {70, 64, 65}, {1100, 16, 16}})
    for (const ops::Transpose transpose : {ops::Transpose::no, ops::Transpose::yes}) {
      Array x = random(d, {rows, stride}, 3);
      const bool t = transpose == ops::Transpose::yes;
      const std::int64_t outer = t ? width : rows, inner = t ? rows : width, row = (inner + 16) / 16 * 16;
      ops::ToFp8 how{.transpose = transpose, .x_stride = stride};
      how.x.shape = {rows, width};
      const EncodedFp8 got = encoded_fp8(ctx, format, x, how, {outer, row});
      float amax = 0;
      Array of_rows(DType::f32, {rows});
      for (std::int64_t i = 0; i < rows * stride; ++i)
        if (i % stride < width) amax = std::max(amax, std::abs(static_cast<float>(x.get(i))));
      for (std::int64_t i = 0; i < rows; ++i) of_rows.set(i, i == rows / 2 ? amax : 0);
      how.largest = of_rows;
      const EncodedFp8 known = encoded_fp8(ctx, format, x, how, {outer, row});
      ASSERT_TRUE(known.scale == got.scale && known.codes == got.codes) << "with known largest magnitudes";
      ASSERT_EQ(got.scale, amax / F::kMax) << rows << "x" << width;
      for (std::int64_t i = 0; i < outer; ++i)
        for (std::int64_t j = 0; j < row; ++j) {
          const auto value = j < inner ? static_cast<float>(x.get(t ? j * stride + i : i * stride + j)) : 0.0F;
          ASSERT_EQ(int(got.codes[static_cast<std::size_t>(i * row + j)]), int(nearest_fp8<F>(value * (1 / got.scale))))
              << rows << "x" << width << (t ? " transposed" : "") << " at " << i << ", " << j;
        }
    }
}

inline void encodes_fp8(Ctx& ctx, DType d) {
  encodes_matrices<E4m3>(ctx, d, DType::f8_e4m3);
  encodes_matrices<E5m2>(ctx, d, DType::f8_e5m2);
}

/// The scale of zeros is not 0; an infinity or NaN anywhere makes the scale NaN.
inline void encodes_special_fp8(Ctx& ctx, DType d) {
  const auto scale_with = [&](float special, std::int64_t at) {
    Array x(d, {20, 40});
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, 0);
    x.set(at, special);
    return encoded_fp8(ctx, DType::f8_e4m3, x, {}, {20, 48});
  };
  const EncodedFp8 zeros = scale_with(0, 0);
  EXPECT_EQ(zeros.scale, ops::kLeastFp8Max / 448);
  EXPECT_EQ(zeros.codes, std::vector<std::uint8_t>(20 * 48, 0));
  for (const std::int64_t at : {0, 399, 799}) {
    EXPECT_EQ(scale_with(-7, at).scale, 7.0F / 448) << at;
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
      EXPECT_TRUE(std::isnan(scale_with(bad, at).scale)) << bad << " at " << at;
  }
}

/// The largest magnitude of each row that is written; y and dx do not depend on whether it is found. A NaN is its
/// row's.
inline void finds_largest(Ctx& ctx, DType d) {
  for (const auto& [rows, width] : {std::pair{5, 24}, {3, 2056}, {2, 17}}) {
    const Shape half{rows, width}, whole{rows, 2 * width};
    Array x = random(d, whole, 1), dy = random(d, half, 2), weight = random(DType::f32, {width}, 3);
    x.set(0, std::nan(""));
    const auto expect = [&](Array& y, Array& again, Array& largest, const char* what) {
      ctx.synchronize();
      const std::int64_t n = y.size() / rows;
      for (std::int64_t r = 0; r < rows; ++r) {
        double most = 0;
        for (std::int64_t i = r * n; i < (r + 1) * n; ++i) {
          ASSERT_TRUE(again.get(i) == y.get(i) || (std::isnan(y.get(i)) && std::isnan(again.get(i)))) << what;
          if (!(std::abs(y.get(i)) <= most)) most = std::isnan(most) ? most : std::abs(y.get(i));
        }
        ASSERT_TRUE(largest.get(r) == most || (std::isnan(most) && std::isnan(largest.get(r))))
            << what << " " << name_of(d) << " row " << r << ": " << largest.get(r) << " is not " << most;
      }
    };
    for (const ops::GluOrder order : {ops::GluOrder::halves, ops::GluOrder::pairs}) {
      Array y(d, half), again(d, half), dx(d, whole), dx_again(d, whole), largest(DType::f32, {rows}),
          of_dx(DType::f32, {rows});
      ops::PackedGlu f{.y = y, .x = x, .order = order, .limit = order == ops::GluOrder::pairs ? 0.5 : 0};
      ops::packed_glu(ctx, f);
      f.y = again;
      f.largest = largest;
      ops::packed_glu(ctx, f);
      expect(y, again, largest, "packed_glu");
      ops::PackedGluGrad g{.dx = store(dx), .dy = dy, .x = x, .order = order, .limit = f.limit};
      ops::packed_glu_grad(ctx, g);
      g.dx = store(dx_again);
      g.largest = of_dx;
      ops::packed_glu_grad(ctx, g);
      expect(dx, dx_again, of_dx, "packed_glu_grad");
    }
    Array y(d, half), again(d, half), inv(DType::f32, {rows}), largest(DType::f32, {rows});
    dy.set(0, std::nan(""));
    ops::RmsNorm n{.y = y, .inv_rms = inv, .x = dy, .weight = weight, .eps = 1e-6};
    ops::rms_norm(ctx, n);
    n.y = again;
    n.largest = largest;
    ops::rms_norm(ctx, n);
    expect(y, again, largest, "rms_norm");
  }
}

/// The values that a matrix, or a column slice of a wider one, has in FP8: those of its codes times its scale.
template <class F>
std::vector<double> rounded_to_fp8(const Array& x, std::int64_t width) {
  const std::int64_t stride = x.shape()[1];
  float amax = 0;
  for (std::int64_t i = 0; i < x.size(); ++i)
    if (i % stride < width) amax = std::max(amax, std::abs(static_cast<float>(x.get(i))));
  const float scale = amax / F::kMax;
  std::vector<double> values;
  for (std::int64_t i = 0; i < x.size(); ++i)
    if (i % stride < width)
      values.push_back(static_cast<double>(decode_fp8<F>(nearest_fp8<F>(static_cast<float>(x.get(i)) * (1 / scale)))) *
                       scale);
  return values;
}

/// C [M, N] = or += alpha * op(A) op(B) with operands in FP8, in every orientation, plus a GEMM that is not in FP8.
inline void multiplies_fp8(Ctx& ctx, DType d) {
  using ops::Transpose;
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Sizes{19, 32, 23}, {64, 48, 32}, {1, 16, 40}, {33, 80, 8}})
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const bool a_turned = ta == Transpose::yes, b_turned = tb == Transpose::yes;
        const std::int64_t a_width = a_turned ? m : k, b_width = b_turned ? k : n, r = 4;
        Array a = random(d, {a_turned ? k : m, a_width + 8}, 1), b = random(d, {b_turned ? n : k, b_width}, 2);
        Array left = random(d, {m, r}, 3), right = random(d, {r, n}, 4);
        const std::vector<double> qa = rounded_to_fp8<E5m2>(a, a_width), qb = rounded_to_fp8<E4m3>(b, b_width);
        using enum Sink::Mode;
        for (const auto& [mode, has_residual] :
             {std::pair(store, false), {accumulate, false}, {accumulate, false}, {store, true}}) {
          Array c = random(DType::f32, {m, n}, 5), residual = random(DType::f32, {m, n}, 6);
          std::vector<double> want = has_residual ? residual.values() : c.values();
          ops::Gemm g{.c = {c, mode}, .a = a, .b = b, .transpose_a = ta, .transpose_b = tb, .alpha = -0.5};
          g.a.shape = {a.shape()[0], a_width};
          g.a_stride = a.shape()[1];
          if (has_residual) g.residual = residual;
          g.added[0] = {.a = left, .b = right};
          g.fp8 = {.a = DType::f8_e5m2, .b = DType::f8_e4m3};
          ASSERT_TRUE(ops::multiplies_in_fp8(g));
          ops::gemm(ctx, g);
          ctx.synchronize();
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (std::int64_t l = 0; l < k; ++l)
                sum += qa[static_cast<std::size_t>(a_turned ? l * m + i : i * k + l)] *
                       qb[static_cast<std::size_t>(b_turned ? j * k + l : l * n + j)];
              for (std::int64_t l = 0; l < r; ++l) sum += left.get(i * r + l) * right.get(l * n + j);
              double& w = want[static_cast<std::size_t>(i * n + j)];
              w = -0.5 * sum + (mode == accumulate || has_residual ? w : 0);
            }
          // Sums of up to 40 products of about 1 in f32.
          for (std::int64_t i = 0; i < c.size(); ++i)
            ASSERT_NEAR(c.get(i), want[static_cast<std::size_t>(i)], 2e-5)
                << m << "x" << n << "x" << k << " " << a_turned << b_turned << " " << name_of(d) << " at " << i;
        }
      }
}

/// Every code in rows of each width, with a scale per matrix, row or block, in f32 and rounded once.
inline void expands_fp8(Ctx& ctx, DType d) {
  struct Case {
    Shape codes, block;
  };
  for (const auto& [shape, block] :
       {Case{{5, 61}, {2, 3}}, {{64, 96}, {64, 96}}, {{40, 64}, {1, 64}}, {{40, 136}, {16, 32}}, {{33, 72}, {8, 8}}}) {
    Array codes(DType::u8, shape);
    for (std::int64_t i = 0; i < codes.size(); ++i) codes.host<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 7);
    const std::int64_t across = (shape[1] + block[1] - 1) / block[1];
    Array scales = random(DType::f32, {(shape[0] + block[0] - 1) / block[0], across}, 3), y(d, shape);
    ConstTensor stored = codes;
    stored.dtype = DType::f8_e4m3;
    ops::expand_fp8(ctx, {.y = y, .codes = stored, .scales = scales, .block = block});
    ctx.synchronize();
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const auto scale = static_cast<float>(scales.get(i / shape[1] / block[0] * across + i % shape[1] / block[1]));
      Array want(d, {1});
      want.set(0, decode_fp8<E4m3>(static_cast<std::uint8_t>(i * 7)) * scale);
      if (std::isnan(want.get(0)))
        ASSERT_TRUE(std::isnan(y.get(i))) << i;
      else
        ASSERT_EQ(y.get(i), want.get(0)) << to_string(shape) << " in " << to_string(block) << " at " << i;
    }
  }
}

inline void transposes_fp8(Ctx& ctx) {
  for (const Shape& shape : {Shape{16, 16}, {64, 64}, {16, 208}, {144, 80}}) {
    Array x(DType::u8, shape), y(DType::u8, {shape[1], shape[0]});
    for (std::int64_t i = 0; i < x.size(); ++i)
      x.host<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 31 + i / shape[1]);
    Tensor from = x, to = y;
    from.dtype = to.dtype = DType::f8_e4m3;
    ops::transpose_fp8(ctx, {.y = to, .x = from});
    ctx.synchronize();
    const std::vector<std::byte> before = x.bytes(), after = y.bytes();
    for (std::int64_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(after[static_cast<std::size_t>(i % shape[1] * shape[0] + i / shape[1])],
                before[static_cast<std::size_t>(i)])
          << to_string(shape) << " at " << i;
  }
}

/// A stored operand gives the bits of one that the GEMM encodes.
inline void multiplies_stored_fp8(Ctx& ctx, DType d) {
  constexpr std::int64_t kM = 19, kN = 32, kK = 48;
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2}) {
    Array a = random(d, {kM, kK}, 1), b = random(d, {kN, kK}, 2), residual = random(d, {kM, kN}, 3);
    Array codes(DType::u8, {kN, kK}), scale(DType::f32, {1}), encoded(d, {kM, kN}), stored(d, {kM, kN});
    Tensor of_b = codes;
    of_b.dtype = DType::f8_e4m3;
    ops::to_fp8(ctx, {.codes = of_b, .scale = scale, .x = b});
    ops::Gemm g{.c = store(encoded),
                .a = a,
                .b = b,
                .transpose_b = ops::Transpose::yes,
                .residual = residual,
                .fp8 = ops::Gemm::Fp8{type, DType::f8_e4m3}};
    ops::gemm(ctx, g);
    g.c = store(stored);
    g.b = of_b;
    g.fp8->b_scale = scale;
    ops::gemm(ctx, g);
    ctx.synchronize();
    ASSERT_EQ(stored.values(), encoded.values()) << name_of(d);
  }
}

}  // namespace qtrain::testing
