#include <cmath>

#include "kernels/cpu/quantize8.h"
#include "kernels/quantize.h"

// Compiled without contraction (FMA): products are rounded before they are added.
namespace qtrain::ops {
namespace {

using simd::Vec;

/// Computes codes and scale of one block.
void quantize_block(const Quantize8& a, std::int64_t begin, std::int64_t end, float* absmax) {
  const auto* x = a.x.as<float>();
  const auto* map = a.map.as<float>();
  auto* codes = a.codes.as<std::uint8_t>();
  float largest = 0;
  for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));  // skips NaN
  *absmax = largest;
  if (largest == 0) return void(std::fill(codes + begin, codes + end, std::uint8_t{0}));
  const float inverse = 1.0F / largest;
  for (std::int64_t i = begin; i < end; ++i) {
    const float scaled = x[i] * inverse;
    codes[i] = static_cast<std::uint8_t>(nearest_code(map, a.rule == CodeRule::grid ? on_grid(scaled) : scaled));
  }
}

template <class T>
void dequantize_rows_as(Ctx& ctx, const DequantizeRows8& a) {
  const std::int64_t K = a.codes.shape[1], step = a.y_stride == 0 ? K : a.y_stride;
  const auto* codes = a.codes.as<std::int8_t>();
  const auto* scale = a.scale.as<float>();
  T* y = a.y.as<T>();
  const RowExpansion8<T> expand;
  for_rows(ctx, a.codes.shape[0], K, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) expand({codes + row * K, scale[row], K}, y + row * step);
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Quantize8& a) {
  const std::int64_t n = a.x.numel(), size = a.blocksize;
  auto* absmax = a.absmax.as<float>();
  for_ranges(ctx, blocks_of(n, size), ceil_div(kBlockSize, 4 * size), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) quantize_block(a, b * size, std::min(n, (b + 1) * size), absmax + b);
  });
}

void run_cpu(Ctx& ctx, const NestAbsmax& a) {
  const std::span<float> absmax = a.absmax.span<float>();
  double sum = 0;
  for (const float v : absmax) sum += v;
  const auto offset = static_cast<float>(sum / static_cast<double>(absmax.size()));
  *a.offset.as<float>() = offset;
  for (float& v : absmax) v -= offset;
  run_cpu(ctx, Quantize8{.codes = a.codes,
                         .absmax = a.nested_absmax,
                         .x = a.absmax,
                         .map = a.map,
                         .blocksize = a.blocksize,
                         .rule = CodeRule::grid});
}

void run_cpu(Ctx& ctx, const Dequantize8& a) {
  const auto* codes = a.codes.as<std::uint8_t>();
  const auto *absmax = a.absmax.as<float>(), *map = a.map.as<float>();
  auto* y = a.y.as<float>();
  const std::int64_t n = a.y.numel(), size = a.blocksize;
  for_ranges(ctx, blocks_of(n, size), ceil_div(kBlockSize, size), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b)
      for (std::int64_t i = b * size, end = std::min(n, i + size); i < end; ++i) y[i] = map[codes[i]] * absmax[b];
  });
}

void run_cpu(Ctx& ctx, const DequantizeRows8& a) {
  switch (a.y.dtype) {
    case DType::f32: return dequantize_rows_as<float>(ctx, a);
    case DType::bf16: return dequantize_rows_as<Bf16>(ctx, a);
    case DType::f16: return dequantize_rows_as<F16>(ctx, a);
    default: fail(ErrorKind::internal, {.cause = "8-bit rows become f32, bf16 or f16"});
  }
}

}  // namespace qtrain::ops
