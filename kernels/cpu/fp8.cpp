#include "kernels/fp8.h"

#include <cmath>
#include <limits>

#include "core/fp8.h"

namespace qtrain::ops {
namespace {

/// The scale for values whose largest magnitude is `amax`.
float fp8_scale(float amax, float largest) {
  if (!std::isfinite(amax)) return std::numeric_limits<float>::quiet_NaN();
  return std::max(amax, kLeastFp8Max) / largest;
}

/// x as the codes see it: [rows, width] with rows and columns exchanged if they are to be.
template <class T>
struct Seen {
  const T* data;
  std::int64_t rows, width, row_step, column_step;

  explicit Seen(const ToFp8& a) : data(a.x.as<T>()) {
    const bool transposed = a.transpose == Transpose::yes;
    const std::int64_t step = ops::row_step(a.x, a.x_stride);
    rows = a.x.shape[transposed ? 1 : 0];
    width = a.x.shape[transposed ? 0 : 1];
    row_step = transposed ? 1 : step;
    column_step = transposed ? step : 1;
  }
  float at(std::int64_t row, std::int64_t column) const {
    return static_cast<float>(data[row * row_step + column * column_step]);
  }
};

/// Rows and columns [begin, end) of codes.
struct Range2 {
  std::int64_t row, end_row, column, end_column;
};

template <class T>
float largest_magnitude(const Seen<T>& x, const Range2& part) {
  float amax = 0;
  for (std::int64_t r = part.row; r < std::min(part.end_row, x.rows); ++r)
    for (std::int64_t c = part.column; c < std::min(part.end_column, x.width); ++c) {
      const float size = std::abs(x.at(r, c));
      if (size > amax || std::isnan(size)) amax = size;
      if (std::isnan(amax)) return amax;
    }
  return amax;
}

float largest_of_parts(ConstTensor parts) {
  float amax = 0;
  for (const float part : parts.span<float>())
    if (part > amax || std::isnan(part)) amax = part;
  return amax;
}

template <class T, class F>
void encode_part(const ToFp8& a, const Seen<T>& x, const Range2& part, float factor) {
  for (std::int64_t r = part.row; r < part.end_row; ++r) {
    auto* codes = reinterpret_cast<std::uint8_t*>(a.codes.data) + r * a.codes.shape[1];
    for (std::int64_t c = part.column; c < part.end_column; ++c)
      codes[c] = r < x.rows && c < x.width ? encode_fp8<F>(x.at(r, c) * factor) : std::uint8_t{0};
  }
}

template <class T, class F>
void encode_matrix(Ctx& ctx, const ToFp8& a) {
  const Seen<T> x(a);
  const std::int64_t rows = a.codes.shape[0], row = a.codes.shape[1];
  const float amax = a.largest ? largest_of_parts(a.largest) : largest_magnitude(x, {0, rows, 0, row});
  const float scale = fp8_scale(amax, F::kMax);
  *a.scale.as<float>() = scale;
  ctx.pool().run(rows, [&](std::int64_t r, int) { encode_part<T, F>(a, x, {r, r + 1, 0, row}, 1 / scale); });
}

/// Blocks of one or 128 rows, of 128 columns.
template <class T>
void encode_blocks(Ctx& ctx, const ToFp8& a) {
  const Seen<T> x(a);
  const bool vectors = a.block == Fp8Block::vector;
  const std::int64_t rows = a.codes.shape[0], row = a.codes.shape[1], height = vectors ? 1 : kFp8Block;
  const Shape shape = fp8_scales(a.block, rows, row);
  auto* scales = a.scale.as<float>();
  if (!vectors) std::fill_n(scales, shape.numel(), 0.0F);  // those that only fill up rows
  ctx.pool().run((rows + height - 1) / height, [&](std::int64_t down, int) {
    for (std::int64_t across = 0; across * kFp8Block < row; ++across) {
      const Range2 part{down * height, std::min((down + 1) * height, rows), across * kFp8Block,
                        std::min((across + 1) * kFp8Block, row)};
      const float scale = fp8_scale(largest_magnitude(x, part), E4m3::kMax);
      scales[vectors ? across * rows + down : down * shape[1] + across] = scale;
      encode_part<T, E4m3>(a, x, part, 1 / scale);
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const ToFp8& a) {
  dispatch_float(a.x.dtype, [&]<class T>() {
    if (a.block != Fp8Block::matrix) return encode_blocks<T>(ctx, a);
    a.codes.dtype == DType::f8_e4m3 ? encode_matrix<T, E4m3>(ctx, a) : encode_matrix<T, E5m2>(ctx, a);
  });
}

}  // namespace qtrain::ops
