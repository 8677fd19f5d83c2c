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

template <class T>
float largest_magnitude(const ToFp8& a) {
  float amax = 0;
  for (const float part : a.largest ? a.largest.span<float>() : std::span<const float>{})
    if (part > amax || std::isnan(part)) amax = part;
  if (a.largest) return amax;
  for (std::int64_t row = 0; row < a.x.shape[0]; ++row)
    for (std::int64_t column = 0; column < a.x.shape[1]; ++column) {
      const float size = std::abs(static_cast<float>(a.x.as<T>()[row * row_step(a.x, a.x_stride) + column]));
      if (size > amax || std::isnan(size)) amax = size;
      if (std::isnan(amax)) return amax;
    }
  return amax;
}

template <class T, class F>
void encode_matrix(Ctx& ctx, const ToFp8& a) {
  const float scale = fp8_scale(largest_magnitude<T>(a), F::kMax), factor = 1 / scale;
  *a.scale.as<float>() = scale;
  const bool transposed = a.transpose == Transpose::yes;
  const std::int64_t step = row_step(a.x, a.x_stride), length = a.x.shape[transposed ? 0 : 1], row = a.codes.shape[1];
  const T* x = a.x.as<T>();
  ctx.pool().run(a.codes.shape[0], [&](std::int64_t r, int) {
    auto* codes = reinterpret_cast<std::uint8_t*>(a.codes.data) + r * row;
    for (std::int64_t i = 0; i < length; ++i)
      codes[i] = encode_fp8<F>(static_cast<float>(x[transposed ? i * step + r : r * step + i]) * factor);
    std::fill(codes + length, codes + row, std::uint8_t{0});
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const ToFp8& a) {
  dispatch_float(a.x.dtype, [&]<class T>() {
    a.codes.dtype == DType::f8_e4m3 ? encode_matrix<T, E4m3>(ctx, a) : encode_matrix<T, E5m2>(ctx, a);
  });
}

}  // namespace qtrain::ops
