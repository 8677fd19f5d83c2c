#pragma once
#include "kernels/gemm.h"

namespace qtrain::ops {

/// Rows of FP8 operands are multiples of this many elements.
inline constexpr std::int64_t kFp8Row = 16;

/// Encodes x [M, K] (f32, bf16; CUDA: and f16) for a GEMM in FP8 with one scale, the largest magnitude of x divided by
/// the largest number of the format ("current scaling"): codes = x / scale, rounded to nearest even. `codes` is f8_e4m3
/// or f8_e5m2 [M, row]; with `transpose`, its rows are the columns of x, [K, row]. Codes past the end of a row of x are
/// 0. If x contains an infinity or NaN, the scale is NaN, and so is the result of the GEMM. x_stride: see Factors.
struct ToFp8 {
  Tensor codes, scale;  ///< f8 [M or K, row], f32 [1]
  ConstTensor x;
  Transpose transpose = Transpose::no;
  std::int64_t x_stride = 0;
  /// f32 [n], if known: parts whose largest number is the largest magnitude of x, such as those of its rows, so that x
  /// is read only once.
  ConstTensor largest = {};
};
void run_cpu(Ctx&, const ToFp8&);
void run_cuda(Ctx&, const ToFp8&);

/// A stored weight: y [N, K] in f32, bf16 or f16 = codes f8_e4m3 [N, K] times the scale of their block, rounded once.
/// `block`: rows and columns that share a scale; those at the end may be smaller. scales: f32 [blocks of N, of K].
struct ExpandFp8 {
  Tensor y;
  ConstTensor codes, scales;
  Shape block;
};
void run_cpu(Ctx&, const ExpandFp8&);
void run_cuda(Ctx&, const ExpandFp8&);
/// y [K, N] = the transpose of codes x [N, K]; both sizes are multiples of 16.
struct TransposeFp8 {
  Tensor y;
  ConstTensor x;
};
void run_cpu(Ctx&, const TransposeFp8&);
void run_cuda(Ctx&, const TransposeFp8&);

/// Whether the first GEMM of `g` is computed in FP8: it is requested, and the GEMM library supports it. This requires
/// rows of the result that are multiples of 16 elements and aligned to 16 bytes, no bias, and operands that are not
/// f64. A stored B also needs an inner dimension that is a multiple of 16.
bool multiplies_in_fp8(const Gemm& g);

/// The length of a row of codes for `n` elements.
constexpr std::int64_t fp8_row(std::int64_t n) {
  return (n + kFp8Row - 1) / kFp8Row * kFp8Row;
}
/// Bytes of `rows` rows of codes for `n` elements each, and of their scale.
constexpr std::size_t fp8_bytes(std::int64_t rows, std::int64_t n) {
  return static_cast<std::size_t>(rows * fp8_row(n) + kFp8Row);
}

/// How the operands of a GEMM in FP8 are encoded, A as [M, row] and B as [N, row]; `b` is empty if B is stored in FP8.
struct Fp8Factors {
  ToFp8 a, b;
  ConstTensor b_codes, b_scale;  ///< encoded or stored
};
/// Describes how to encode the operands of `g`. `a` and `b` have fp8_bytes(M, K) and fp8_bytes(N, K) bytes, aligned
/// to 16; `b` is not used if B is stored in FP8.
Fp8Factors fp8_factors(const Gemm& g, std::byte* a, std::byte* b);

/// The scale is that of at least this largest magnitude, so that it is not 0.
inline constexpr float kLeastFp8Max = 1e-30F;

inline void to_fp8(Ctx& ctx, const ToFp8& a) {
  const Shape &x = a.x.shape, &codes = a.codes.shape;
  check(x.rank == 2 && codes.rank == 2 && a.scale.numel() == 1 && codes[1] % kFp8Row == 0, "to_fp8: shapes");
  const bool transposed = a.transpose == Transpose::yes;
  check(codes[0] == x[transposed ? 1 : 0] && codes[1] >= x[transposed ? 0 : 1], "to_fp8: codes have another size");
  check(a.codes.dtype == DType::f8_e4m3 || a.codes.dtype == DType::f8_e5m2, "to_fp8: not an FP8 type");
  if (x.numel() > 0) dispatch(ctx, a);
}
inline void expand_fp8(Ctx& ctx, const ExpandFp8& a) {
  const Shape &n = a.codes.shape, &block = a.block;
  check(n.rank == 2 && a.y.numel() == n.numel() && a.codes.dtype == DType::f8_e4m3, "expand_fp8: shapes");
  check(block.rank == 2 && block[0] > 0 && block[1] > 0, "expand_fp8: empty blocks");
  check(a.scales.shape == Shape{(n[0] + block[0] - 1) / block[0], (n[1] + block[1] - 1) / block[1]},
        "expand_fp8: another number of scales");
  if (n.numel() > 0) dispatch(ctx, a);
}
inline void transpose_fp8(Ctx& ctx, const TransposeFp8& a) {
  const Shape &x = a.x.shape, &y = a.y.shape;
  check(x.rank == 2 && y == Shape{x[1], x[0]} && is_fp8(a.x.dtype) && a.y.dtype == a.x.dtype, "transpose_fp8: shapes");
  check(x[0] % kFp8Row == 0 && x[1] % kFp8Row == 0, "transpose_fp8: sizes that are not multiples of 16");
  if (x.numel() > 0) dispatch(ctx, a);
}

}  // namespace qtrain::ops
