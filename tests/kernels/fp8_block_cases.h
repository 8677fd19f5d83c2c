#pragma once
#include "tests/kernels/fp8_cases.h"

/// What both backends must compute with a scale per block.
namespace qtrain::testing {

/// The rows and columns of codes of a block.
struct BlockOfCodes {
  std::int64_t height, width;
};
inline BlockOfCodes size_of_block(ops::Fp8Block block) {
  return {block == ops::Fp8Block::vector ? 1 : ops::kFp8Block, ops::kFp8Block};
}
/// The place of the scale of a block: those of vectors are columns of neighbors, those of squares rows that begin at
/// multiples of four.
inline std::int64_t place_of_scale(ops::Fp8Block block, Shape codes, std::int64_t r, std::int64_t c) {
  const std::int64_t across = (codes[1] + 127) / 128;
  return block == ops::Fp8Block::vector ? c / 128 * codes[0] + r : r / 128 * ((across + 3) / 4 * 4) + c / 128;
}

/// A scale for each block, also where rows, columns, or both end in the middle of one; rows of zeros after vectors.
inline void encodes_blocks(Ctx& ctx, DType d, ops::Fp8Block block) {
  struct Case {
    std::int64_t rows, width, stride, more;
  };
  for (const auto& [rows, width, stride, more] :
       {Case{3, 16, 16, 1}, {33, 130, 130, 3}, {130, 72, 96, 0}, {1, 5, 7, 3}, {129, 144, 144, 0}})
    for (const ops::Transpose transpose : {ops::Transpose::no, ops::Transpose::yes}) {
      Array x = random(d, {rows, stride}, 3);
      // Values of different size, so that no block has the scale of another one.
      for (std::int64_t i = 0; i < x.size(); ++i)
        x.set(i, x.get(i) * static_cast<double>(1 + i % stride / 50 + i / stride));
      const bool t = transpose == ops::Transpose::yes;
      const std::int64_t extra = t || block == ops::Fp8Block::square ? 0 : more, inner = t ? rows : width;
      const Shape codes{(t ? width : rows) + extra, (inner + 15) / 16 * 16};
      Array to(DType::u8, codes), scales(DType::f32, ops::fp8_scales(block, codes[0], codes[1]));
      ops::ToFp8 op{.codes = to, .scale = scales, .x = x, .transpose = transpose, .x_stride = stride, .block = block};
      op.codes.dtype = DType::f8_e4m3;
      op.x.shape = {rows, width};
      ops::to_fp8(ctx, op);
      ctx.synchronize();
      const auto value = [&](std::int64_t r, std::int64_t c) {
        const std::int64_t row = t ? c : r, column = t ? r : c;
        return row < rows && column < width ? static_cast<float>(x.get(row * stride + column)) : 0.0F;
      };
      const auto [height, across] = size_of_block(block);
      for (std::int64_t top = 0; top < codes[0]; top += height)
        for (std::int64_t left = 0; left < codes[1]; left += across) {
          float amax = 0;
          const std::int64_t bottom = std::min(top + height, codes[0]), right = std::min(left + across, codes[1]);
          for (std::int64_t r = top; r < bottom; ++r)
            for (std::int64_t c = left; c < right; ++c) amax = std::max(amax, std::abs(value(r, c)));
          const float scale = std::max(amax, ops::kLeastFp8Max) / E4m3::kMax;
          ASSERT_EQ(static_cast<float>(scales.get(place_of_scale(block, codes, top, left))), scale)
              << rows << "x" << width << (t ? " transposed" : "") << " block at " << top << ", " << left;
          for (std::int64_t r = top; r < bottom; ++r)
            for (std::int64_t c = left; c < right; ++c)
              ASSERT_EQ(int(to.host<std::uint8_t>()[r * codes[1] + c]),
                        int(nearest_fp8<E4m3>(value(r, c) * (1 / scale))))
                  << rows << "x" << width << (t ? " transposed" : "") << " at " << r << ", " << c;
        }
    }
}
inline void encodes_fp8_blocks(Ctx& ctx, DType d) {
  encodes_blocks(ctx, d, ops::Fp8Block::vector);
  encodes_blocks(ctx, d, ops::Fp8Block::square);
}

/// An infinity or NaN is that of its block only.
inline void encodes_special_fp8_blocks(Ctx& ctx, DType d) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const ops::Fp8Block block : {ops::Fp8Block::vector, ops::Fp8Block::square})
      for (const ops::Transpose transpose : {ops::Transpose::no, ops::Transpose::yes}) {
        constexpr std::int64_t kSize = 144, kBad = 130;
        Array x = random(d, {kSize, kSize}, 3), codes(DType::u8, {kSize, kSize}),
              scales(DType::f32, ops::fp8_scales(block, kSize, kSize));
        x.set(kBad * kSize + 5, bad);
        ops::ToFp8 op{.codes = codes, .scale = scales, .x = x, .transpose = transpose, .block = block};
        op.codes.dtype = DType::f8_e4m3;
        ops::to_fp8(ctx, op);
        ctx.synchronize();
        const bool t = transpose == ops::Transpose::yes;
        const std::int64_t row = t ? 5 : kBad, column = t ? kBad : 5;
        const auto [height, across] = size_of_block(block);
        for (std::int64_t r = 0; r < kSize; r += height)
          for (std::int64_t c = 0; c < kSize; c += across)
            EXPECT_EQ(std::isnan(scales.get(place_of_scale(block, {kSize, kSize}, r, c))),
                      r / height == row / height && c / across == column / across)
                << "scale at " << r << ", " << c;
      }
}

/// The values that op(x) [outer, inner] has in FP8 with a scale per block, as f64.
inline std::vector<double> rounded_in_blocks(const Array& x, Shape seen, ops::Transpose transpose,
                                             ops::Fp8Block block) {
  const auto [height, across] = size_of_block(block);
  const std::int64_t stride = x.shape()[1];
  const auto value = [&](std::int64_t r, std::int64_t c) {
    return static_cast<float>(x.get(transpose == ops::Transpose::yes ? c * stride + r : r * stride + c));
  };
  std::vector<double> values(static_cast<std::size_t>(seen.numel()));
  for (std::int64_t top = 0; top < seen[0]; top += height)
    for (std::int64_t left = 0; left < seen[1]; left += across) {
      const std::int64_t bottom = std::min(top + height, seen[0]), right = std::min(left + across, seen[1]);
      float amax = 0;
      for (std::int64_t r = top; r < bottom; ++r)
        for (std::int64_t c = left; c < right; ++c) amax = std::max(amax, std::abs(value(r, c)));
      const float scale = amax / E4m3::kMax;
      for (std::int64_t r = top; r < bottom; ++r)
        for (std::int64_t c = left; c < right; ++c)
          values[static_cast<std::size_t>(r * seen[1] + c)] =
              static_cast<double>(decode_fp8<E4m3>(nearest_fp8<E4m3>(value(r, c) * (1 / scale)))) * scale;
    }
  return values;
}

/// C = or += alpha * A op(B) [+ residual] with a scale per block, compared with f64, for numbers of rows that are
/// multiples of four and others.
inline void multiplies_fp8_blocks(Ctx& ctx, DType d) {
  using ops::Transpose;
  using enum Sink::Mode;
  struct Sizes {
    std::int64_t m, n, k;
    Transpose turned;  ///< of A, which then has vectors along its rows, as B has
  };
  for (const auto& [m, n, k, ta] : {Sizes{20, 32, 200, Transpose::no},
                                    {19, 144, 48, Transpose::no},
                                    {3, 16, 256, Transpose::no},
                                    {48, 32, 150, Transpose::yes}})
    for (const Transpose tb : {Transpose::no, Transpose::yes})
      for (const auto& [mode, has_residual] : {std::pair(store, false), {accumulate, false}, {store, true}}) {
        const bool a_turned = ta == Transpose::yes, b_turned = tb == Transpose::yes;
        Array a = random(d, {a_turned ? k : m, (a_turned ? m : k) + 8}, 1),
              b = random(d, {b_turned ? n : k, b_turned ? k : n}, 2);
        const auto of_b = a_turned ? ops::Fp8Block::vector : ops::Fp8Block::square;
        const auto qa = rounded_in_blocks(a, {m, k}, ta, ops::Fp8Block::vector);
        const auto qb = rounded_in_blocks(b, {n, k}, b_turned ? Transpose::no : Transpose::yes, of_b);
        Array c = random(DType::f32, {m, n}, 5), residual = random(DType::f32, {m, n}, 6);
        const std::vector<double> before = has_residual ? residual.values() : c.values();
        ops::Gemm g{.c = {c, mode}, .a = a, .b = b, .transpose_a = ta, .transpose_b = tb, .alpha = -0.5};
        g.a.shape = {a.shape()[0], a_turned ? m : k};
        g.a_stride = a.shape()[1];
        if (has_residual) g.residual = residual;
        g.fp8 =
            ops::Gemm::Fp8{.a = DType::f8_e4m3, .b = DType::f8_e4m3, .a_block = ops::Fp8Block::vector, .b_block = of_b};
        ASSERT_TRUE(ops::multiplies_in_fp8(g));
        ops::gemm(ctx, g);
        ctx.synchronize();
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::int64_t l = 0; l < k; ++l)
              sum += qa[static_cast<std::size_t>(i * k + l)] * qb[static_cast<std::size_t>(j * k + l)];
            const double sum_before =
                mode == accumulate || has_residual ? before[static_cast<std::size_t>(i * n + j)] : 0;
            // Sums of up to 256 products of about 1 in f32.
            ASSERT_NEAR(c.get(i * n + j), sum_before - 0.5 * sum, 1e-4)
                << m << "x" << n << "x" << k << " " << a_turned << b_turned << " " << name_of(d) << " at " << i << ", "
                << j;
          }
      }
}

/// Scales of two layers, one below the other, for a weight and for its transpose.
inline void places_scales(Ctx& ctx) {
  Array first = random(DType::f32, {2, 3}, 1), second = random(DType::f32, {1, 3}, 2), y(DType::f32, {3, 4}),
        turned(DType::f32, {3, 4});
  for (Array* to : {&y, &turned})
    for (Array* from : {&first, &second})
      ops::place_scales(ctx, {.y = *to,
                              .x = *from,
                              .first = from == &first ? 0 : 2,
                              .transpose = to == &y ? ops::Transpose::no : ops::Transpose::yes});
  ctx.synchronize();
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 3; ++c) {
      const double want = r < 2 ? first.get(r * 3 + c) : second.get(c);
      EXPECT_EQ(y.get(r * 4 + c), want) << r << ", " << c;
      EXPECT_EQ(turned.get(c * 4 + r), want) << r << ", " << c;
    }
}

}  // namespace qtrain::testing
