#pragma once
#include "kernels/adapter_columns.h"
#include "kernels/elementwise.h"
#include "kernels/glu.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/quantize_cases.h"

/// What both backends must do with matrices whose rows have other columns beside them: with and without packs.
namespace qtrain::testing {

/// y [rows, step] has the columns of `rows` first, and then sevens.
inline void expect_rows(const Array& y, const Array& rows, std::int64_t step) {
  const std::int64_t width = rows.shape()[-1];
  for (std::int64_t r = 0; r < rows.shape().rows(); ++r)
    for (std::int64_t c = 0; c < step; ++c)
      ASSERT_EQ(y.get(r * step + c), c < width ? rows.get(r * width + c) : 7) << r << " " << c << " of " << width;
}

/// A matrix [rows, step] of sevens.
inline Array sevens(DType d, std::int64_t rows, std::int64_t step) {
  Array y(d, {rows, step});
  for (std::int64_t i = 0; i < y.size(); ++i) y.set(i, 7);
  return y;
}
inline Tensor first_columns(Array& y, std::int64_t width) {
  Tensor t = y;
  t.shape = {t.shape[0], width};
  return t;
}

inline void norms_of_spaced_rows(Ctx& ctx, DType d) {
  const DType full = d == DType::f64 ? DType::f64 : DType::f32;
  constexpr std::int64_t kRows = 5;
  for (const auto& [width, step] : {std::pair<std::int64_t, std::int64_t>{64, 80}, {33, 40}, {33, 35}}) {
    Array x = random(d, {kRows, width}, 1), weight = random(full, {width}, 2);
    Array plain(d, {kRows, width}), inv_rms(full, {kRows}), spaced = sevens(d, kRows, step), inv(full, {kRows});
    ops::rms_norm(ctx, {.y = plain, .inv_rms = inv_rms, .x = x, .weight = weight, .eps = 1e-6});
    ops::rms_norm(
        ctx,
        {.y = first_columns(spaced, width), .inv_rms = inv, .x = x, .weight = weight, .eps = 1e-6, .y_stride = step});
    ctx.synchronize();
    expect_rows(spaced, plain, step);
  }
}

inline void gates_of_spaced_rows(Ctx& ctx, DType d) {
  constexpr std::int64_t kRows = 5;
  for (const auto& [width, step] : {std::pair<std::int64_t, std::int64_t>{64, 80}, {33, 40}, {33, 35}}) {
    Array x = random(d, {kRows, 2 * width}, 1), plain(d, {kRows, width}), spaced = sevens(d, kRows, step);
    ops::packed_glu(ctx, {.y = plain, .x = x});
    ops::packed_glu(ctx, {.y = first_columns(spaced, width), .x = x, .y_stride = step});
    ctx.synchronize();
    expect_rows(spaced, plain, step);
  }
}

/// Weights expanded from codes, in the types that these have. K is a multiple of a word of codes, or not.
inline void expands_to_spaced_rows(Ctx& ctx, DType d) {
  constexpr std::int64_t kRows = 37;
  for (const auto& [width, step] : {std::pair<std::int64_t, std::int64_t>{72, 88}, {64, 65}, {33, 48}}) {
    const QuantizeCase c{DType::f32, kRows * width, FourBit::nf4, 64};
    QuantizedArrays q(ctx, c);
    Array plain(d, {kRows, width}), spaced = sevens(d, kRows, step);
    ops::dequantize4(ctx, {.y = plain, .w = q.nested(c, {kRows, width})});
    ops::dequantize4(ctx, {.y = first_columns(spaced, width), .w = q.nested(c, {kRows, width}), .y_stride = step});
    ctx.synchronize();
    expect_rows(spaced, plain, step);
    Array codes(DType::i8, {kRows, width}), scale = random(DType::f32, {kRows}, 3);
    for (std::int64_t i = 0; i < codes.size(); ++i) codes.host<std::int8_t>()[i] = static_cast<std::int8_t>(i * 37 - 5);
    spaced = sevens(d, kRows, step);
    ops::dequantize_rows8(ctx, {.y = plain, .codes = codes, .scale = scale});
    ops::dequantize_rows8(ctx, {.y = first_columns(spaced, width), .codes = codes, .scale = scale, .y_stride = step});
    ctx.synchronize();
    expect_rows(spaced, plain, step);
  }
}

/// Three layers, the second without an adapter, and one layer; weights are copied, or there already.
inline void puts_adapters_beside_weights(Ctx& ctx, DType d) {
  struct LayerSizes {
    std::int64_t rows, rank;
  };
  for (const std::int64_t K : {64, 13})
    for (const auto& sizes : {std::vector<LayerSizes>{{6, 3}, {2, 0}, {5, 8}}, {{9, 4}}})
      for (const bool copies : {true, false})
        for (const DType type : {d, d == DType::f64 ? DType::f64 : DType::f32}) {
          std::int64_t rows = 0, ranks = 0;
          for (const LayerSizes& l : sizes) rows += l.rows, ranks += l.rank;
          const std::int64_t step = K + (ranks + 15) / 16 * 16;
          Array w = random(d, {rows, K}, 1), y = sevens(d, rows, step), want = y;
          ops::AdapterColumns op{.y = first_columns(y, K + ranks), .y_stride = step, .layers = {}};
          std::vector<Array> b;
          for (const LayerSizes& l : sizes) b.push_back(random(type, {l.rows, std::max<std::int64_t>(l.rank, 1)}, 2));
          std::int64_t row = 0, first = 0;
          for (std::size_t i = 0; i < sizes.size(); ++i) {
            const auto [count, rank] = sizes[i];
            op.layers[i] = {.rows = count};
            if (copies) op.layers[i].w = w.tensor().slice(row, count);
            if (rank > 0) op.layers[i].b = b[i];
            for (std::int64_t r = 0; r < count; ++r)
              for (std::int64_t c = 0; c < K + ranks; ++c) {
                const std::int64_t own = c - K - first;
                double value = own >= 0 && own < rank ? b[i].get(r * rank + own) : 0;
                if (c < K) value = copies ? w.get((row + r) * K + c) : 7;
                want.set((row + r) * step + c, value);
              }
            row += count;
            first += rank;
          }
          ops::adapter_columns(ctx, op);
          ctx.synchronize();
          for (row = 0; row < rows; ++row)
            for (std::int64_t c = 0; c < K + ranks; ++c)
              ASSERT_EQ(y.get(row * step + c), want.get(row * step + c)) << name_of(d) << " " << row << " " << c;
        }
}

}  // namespace qtrain::testing
