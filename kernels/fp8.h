#pragma once
#include "kernels/gemm.h"

namespace qtrain::ops {

/// Rows of FP8 operands are multiples of this many elements.
inline constexpr std::int64_t kFp8Row = 16;

/// Rows and columns of codes that share a scale, unless it is that of the whole matrix.
inline constexpr std::int64_t kFp8Block = 128;

/// The library multiplies blocks of a number of rows that is a multiple of this.
inline constexpr std::int64_t kFp8Rows = 4;

/// The shape of the scales, f32, of codes [rows, row], as cuBLASLt reads them: [1] for a matrix; [row / 128, rows] for
/// vectors; [rows / 128, row / 128] for squares, where the quotients are rounded up, and the last one to a multiple
/// of 4.
inline Shape fp8_scales(Fp8Block block, std::int64_t rows, std::int64_t row) {
  constexpr std::int64_t kStride = 4;
  const std::int64_t across = (row + kFp8Block - 1) / kFp8Block;
  if (block == Fp8Block::matrix) return {1};
  if (block == Fp8Block::vector) return {across, rows};
  return {(rows + kFp8Block - 1) / kFp8Block, (across + kStride - 1) / kStride * kStride};
}

/// Encodes x [M, K] (f32, bf16; CUDA: and f16) for a GEMM in FP8. The scale of a block is its largest magnitude divided
/// by the largest number of the format ("current scaling"): codes = x / scale, rounded to nearest even. `codes` is
/// f8_e4m3 or f8_e5m2 [M, row]; with `transpose`, its rows are the columns of x, [K, row]. Codes past the end of a row
/// of x are 0, as are rows after those of x, which only vectors may have. If a block contains an infinity or NaN, its
/// scale is NaN, and so are the results of the GEMM that it enters. x_stride: see Factors. Codes with blocks
/// are E4M3.
struct ToFp8 {
  Tensor codes, scale;  ///< f8 [M or K, row], f32 of the shape fp8_scales
  ConstTensor x;
  Transpose transpose = Transpose::no;
  std::int64_t x_stride = 0;
  /// f32 [n], if known: parts whose largest number is the largest magnitude of x, such as those of its rows, so that x
  /// is read only once. For a block that is the whole matrix.
  ConstTensor largest = {};
  Fp8Block block = Fp8Block::matrix;
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

/// Scales of squares x [n / 128, k / 128] as GEMMs read them: y has the shape fp8_scales, and its rows from `first` on
/// become those of x, or with `transpose` its columns, for the transposed weight.
struct PlaceScales {
  Tensor y;
  ConstTensor x;
  std::int64_t first = 0;
  Transpose transpose = Transpose::no;
};
void run_cpu(Ctx&, const PlaceScales&);
void run_cuda(Ctx&, const PlaceScales&);

/// Whether the first GEMM of `g` is computed in FP8: it is requested, and the GEMM library supports it. This requires
/// rows of the result that are multiples of 16 elements and aligned to 16 bytes, no bias, and operands that are not
/// f64. A stored B also needs an inner dimension that is a multiple of 16, and a transposed A with blocks a number of
/// rows that is a multiple of 4.
bool multiplies_in_fp8(const Gemm& g);

/// The length of a row of codes for `n` elements.
constexpr std::int64_t fp8_row(std::int64_t n) {
  return (n + kFp8Row - 1) / kFp8Row * kFp8Row;
}
/// Bytes of `rows` rows of codes for `n` elements each, and of their scales, which begin and end at multiples of 16.
inline std::size_t fp8_bytes(Fp8Block block, std::int64_t rows, std::int64_t n) {
  const std::int64_t scales = 4 * fp8_scales(block, rows, fp8_row(n)).numel();
  return static_cast<std::size_t>(rows * fp8_row(n) + fp8_row(scales));
}

/// Bytes of A on a GPU for a GEMM of up to m rows, n columns and an inner dimension of k. If the rows are no multiple
/// of kFp8Rows, the last of them, and their part of the result, are in this memory.
inline std::size_t fp8_bytes_of_a(Fp8Block block, const Shape& m_n_k) {
  const std::size_t all = fp8_bytes(block, m_n_k[0], m_n_k[2]);
  if (block != Fp8Block::vector) return all;
  const auto result = static_cast<std::size_t>(kFp8Rows * m_n_k[1]) * sizeof(float);
  return std::max(all, fp8_bytes(block, kFp8Rows, m_n_k[2]) + result);
}

/// How the operands of a GEMM in FP8 are encoded, A as [M, row] and B as [N, row]; `b` is empty if B is stored in FP8.
struct Fp8Factors {
  ToFp8 a, b;
  ConstTensor b_codes, b_scale;  ///< encoded or stored
};
/// Describes how to encode the operands of `g`. `a` and `b` have the fp8_bytes of M and N rows of K elements, aligned
/// to 16; `b` is not used if B is stored in FP8.
Fp8Factors fp8_factors(const Gemm& g, std::byte* a, std::byte* b);

/// The scale is that of at least this largest magnitude, so that it is not 0.
inline constexpr float kLeastFp8Max = 1e-30F;

inline void to_fp8(Ctx& ctx, const ToFp8& a) {
  const Shape &x = a.x.shape, &codes = a.codes.shape;
  check(x.rank == 2 && codes.rank == 2 && codes[1] % kFp8Row == 0, "to_fp8: shapes");
  check(a.scale.shape.numel() == fp8_scales(a.block, codes[0], codes[1]).numel(), "to_fp8: another number of scales");
  const bool transposed = a.transpose == Transpose::yes, vectors = a.block == Fp8Block::vector;
  const std::int64_t rows = x[transposed ? 1 : 0];
  check((codes[0] == rows || (vectors && codes[0] > rows)) && codes[1] >= x[transposed ? 0 : 1],
        "to_fp8: codes have another size");
  check(a.codes.dtype == DType::f8_e4m3 || a.codes.dtype == DType::f8_e5m2, "to_fp8: not an FP8 type");
  check(a.block == Fp8Block::matrix || a.codes.dtype == DType::f8_e4m3, "to_fp8: blocks are E4M3");
  check(!a.largest || a.block == Fp8Block::matrix, "to_fp8: the largest magnitude is that of a matrix");
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
inline void place_scales(Ctx& ctx, const PlaceScales& a) {
  const Shape &x = a.x.shape, &y = a.y.shape;
  const bool turns = a.transpose == Transpose::yes;
  check(x.rank == 2 && y.rank == 2 && a.x.dtype == DType::f32 && a.y.dtype == DType::f32, "place_scales: shapes");
  check(a.first + x[0] <= y[turns ? 1 : 0] && x[1] <= y[turns ? 0 : 1], "place_scales: no room");
  if (x.numel() > 0) dispatch(ctx, a);
}
inline void transpose_fp8(Ctx& ctx, const TransposeFp8& a) {
  const Shape &x = a.x.shape, &y = a.y.shape;
  check(x.rank == 2 && y == Shape{x[1], x[0]} && is_fp8(a.x.dtype) && a.y.dtype == a.x.dtype, "transpose_fp8: shapes");
  check(x[0] % kFp8Row == 0 && x[1] % kFp8Row == 0, "transpose_fp8: sizes that are not multiples of 16");
  if (x.numel() > 0) dispatch(ctx, a);
}

}  // namespace qtrain::ops
