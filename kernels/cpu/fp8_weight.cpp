#include <algorithm>
#include <cmath>

#include "core/fp8.h"
#include "core/half.h"
#include "kernels/cpu/loops.h"
#include "kernels/fp8.h"

namespace qtrain::ops {
namespace {

template <class T>
void expand_fp8_as(Ctx& ctx, const ExpandFp8& a) {
  const std::int64_t width = a.codes.shape[1], blocks = a.scales.shape[1];
  const auto* codes = reinterpret_cast<const std::uint8_t*>(a.codes.data);
  const float* scales = a.scales.as<float>();
  T* y = a.y.as<T>();
  float values[256];
  for (unsigned code = 0; code < 256; ++code) values[code] = decode_fp8<E4m3>(static_cast<std::uint8_t>(code));
  for_rows(ctx, a.codes.shape[0], width, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row)
      for (std::int64_t block = 0; block < blocks; ++block) {
        const float scale = scales[row / a.block[0] * blocks + block];
        const std::int64_t end = std::min((block + 1) * a.block[1], width);
        for (std::int64_t i = row * width + block * a.block[1]; i < row * width + end; ++i)
          y[i] = static_cast<T>(values[codes[i]] * scale);
      }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const ExpandFp8& a) {
  switch (a.y.dtype) {
    case DType::f32: return expand_fp8_as<float>(ctx, a);
    case DType::bf16: return expand_fp8_as<Bf16>(ctx, a);
    case DType::f16: return expand_fp8_as<F16>(ctx, a);
    default: fail(ErrorKind::internal, {.cause = "FP8 weights become f32, bf16 or f16"});
  }
}

void run_cpu(Ctx&, const PlaceScales& a) {
  const bool turns = a.transpose == Transpose::yes;
  const std::int64_t width = a.x.shape[1], step = a.y.shape[1];
  for (std::int64_t i = 0; i < a.x.numel(); ++i) {
    const std::int64_t row = a.first + i / width, column = i % width;
    a.y.as<float>()[turns ? column * step + row : row * step + column] = a.x.as<float>()[i];
  }
}

void run_cpu(Ctx& ctx, const TransposeFp8& a) {
  const std::int64_t rows = a.x.shape[0], width = a.x.shape[1];
  for_rows(ctx, width, rows, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t column = first; column < last; ++column)
      for (std::int64_t row = 0; row < rows; ++row) a.y.data[column * rows + row] = a.x.data[row * width + column];
  });
}

}  // namespace qtrain::ops
