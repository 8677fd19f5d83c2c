#pragma once
#include "kernels/gemm.h"

namespace qtrain::ops {

/// Operands of FP8 GEMMs have rows of a multiple of this many elements.
inline constexpr std::int64_t kFp8Row = 16;

/// Encodes x [M, K] (f32, bf16; CUDA: and f16) for a GEMM in FP8 with one scale, the largest magnitude of x divided by
/// the format's largest number ("current scaling"): codes = x / scale, rounded to nearest even. `codes` is f8_e4m3 or
/// f8_e5m2 [M, row], or with `transpose` [K, row] with the columns of x as rows; elements past the end of a row of x
/// are 0. If x has an infinity or NaN, so has the scale, and so the result of the GEMM. A stride is as in Factors.
struct ToFp8 {
  Tensor codes, scale;  ///< f8 [M or K, row], f32 [1]
  ConstTensor x;
  Transpose transpose = Transpose::no;
  std::int64_t x_stride = 0;
};
void run_cpu(Ctx&, const ToFp8&);
void run_cuda(Ctx&, const ToFp8&);

/// Whether the first GEMM of `g` is computed in FP8: it is asked for, and the GEMM library can do it. The rows of the
/// result must be multiples of 16 elements and aligned to 16 bytes, there must be no bias, and the operands must not be
/// f64.
bool multiplies_in_fp8(const Gemm& g);

/// Elements of a row of codes for `n` elements.
constexpr std::int64_t fp8_row(std::int64_t n) {
  return (n + kFp8Row - 1) / kFp8Row * kFp8Row;
}
/// Bytes for `rows` rows of codes for `n` elements each, and their scale.
constexpr std::size_t fp8_bytes(std::int64_t rows, std::int64_t n) {
  return static_cast<std::size_t>(rows * fp8_row(n) + kFp8Row);
}

/// The operands of a GEMM in FP8, A [M, row] and B [N, row], and their scales.
struct Fp8Factors {
  ToFp8 a, b;
};
/// How the operands of `g` are encoded, in memory of fp8_bytes(M, K) and fp8_bytes(N, K) bytes, aligned to 16.
Fp8Factors fp8_factors(const Gemm& g, std::byte* a, std::byte* b);

/// The smallest largest magnitude that the scale is made for.
inline constexpr float kLeastFp8Max = 1e-30F;

inline void to_fp8(Ctx& ctx, const ToFp8& a) {
  const Shape &x = a.x.shape, &codes = a.codes.shape;
  check(x.rank == 2 && codes.rank == 2 && a.scale.numel() == 1 && codes[1] % kFp8Row == 0, "to_fp8: shapes");
  const bool transposed = a.transpose == Transpose::yes;
  check(codes[0] == x[transposed ? 1 : 0] && codes[1] >= x[transposed ? 0 : 1], "to_fp8: codes have another size");
  check(a.codes.dtype == DType::f8_e4m3 || a.codes.dtype == DType::f8_e5m2, "to_fp8: not an FP8 type");
  if (x.numel() > 0) dispatch(ctx, a);
}

}  // namespace qtrain::ops
