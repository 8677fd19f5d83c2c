#pragma once
#include "kernels/dispatch.h"
#include "kernels/dynamic_map.h"
#include "kernels/four_bit.h"
#include "kernels/gemm.h"

/// Block quantization of weights (NF4: Dettmers et al. 2023, QLoRA; LLM.int8: 2022) and optimizer states (2022),
/// bitwise as bitsandbytes computes it on the CPU: each block of `blocksize` consecutive elements has a scale, its
/// largest magnitude (absmax). The last block may be shorter.
namespace qtrain {

/// The smallest divisor: a block of zeros has an absmax of 0.
inline constexpr float kLeastScale = 1e-38F;
/// Whether bitsandbytes supports this size of 4-bit blocks: a power of two from 32 to 4096.
constexpr bool is_blocksize4(std::int64_t size) {
  return size >= 32 && size <= 4096 && (size & (size - 1)) == 0;
}
/// Number of blocks that n elements take.
constexpr std::int64_t blocks_of(std::int64_t n, std::int64_t blocksize) {
  return (n + blocksize - 1) / blocksize;
}

namespace ops {

/// A 4-bit tensor of n = shape.numel() elements; all parts are on one device, with any alignment. The scale of block b
/// is absmax[b], or, if absmax is nested (u8):
///   nested_map[absmax[b]] * nested_absmax[b / nested_blocksize] + offset[0],  each operation rounded to f32.
struct Blocks4 {
  ConstTensor codes;   ///< u8 [ceil(n / 2)]: element 2j in the high half of byte j, 2j + 1 in the low half
  ConstTensor absmax;  ///< f32 [blocks], or u8 [blocks]
  ConstTensor map;     ///< f32 [16]
  ConstTensor nested_absmax = {}, nested_map = {}, offset = {};  ///< f32 [ceil(blocks / nested_blocksize)], [256], [1]
  Shape shape;
  int blocksize = 64, nested_blocksize = 256;

  bool nested() const { return absmax.dtype == DType::u8; }
};
/// Throws an internal error unless the parts fit each other.
inline void check_blocks(const Blocks4& w) {
  const std::int64_t n = w.shape.numel(), blocks = blocks_of(n, w.blocksize);
  check(is_blocksize4(w.blocksize), "4-bit blocks: sizes are powers of two from 32 to 4096");
  check(w.codes.dtype == DType::u8 && w.codes.numel() == (n + 1) / 2, "4-bit blocks: codes have another size");
  check(w.absmax.numel() == blocks && w.map.numel() == 16, "4-bit blocks: absmax or map have another size");
  if (!w.nested()) return;
  check(w.nested_blocksize > 0 && (w.nested_blocksize & (w.nested_blocksize - 1)) == 0 &&
            w.nested_absmax.numel() == blocks_of(blocks, w.nested_blocksize) && w.nested_map.numel() == 256 &&
            w.offset.numel() == 1,
        "4-bit blocks: the nested scales have another size");
}

/// y = w, in f32, bf16 or f16: the f32 product of map value and scale, rounded once. y_stride: elements from one row of
/// a matrix y to the next; 0 means that they are contiguous.
struct Dequantize4 {
  Tensor y;
  Blocks4 w;
  std::int64_t y_stride = 0;
};
/// Encodes x (f32, bf16, f16; n elements, computed in f32) as codes and absmax f32, in blocks of `blocksize`. A full
/// block is multiplied by 1 / max(absmax, 1e-38); a shorter last block is divided by max(absmax, 1e-38), which is then
/// its scale. A block with a NaN or infinity gets a NaN or infinite scale and meaningless codes.
struct Quantize4 {
  Tensor codes, absmax;
  ConstTensor x;
  FourBit type = FourBit::nf4;
  int blocksize = 64;
};
/// Quantizes scales: offset[0] = mean(absmax), then codes u8 [n] and nested_absmax f32 of absmax - offset with `map`
/// (f32 [256]). The mean is correctly rounded; torch's differs in the last bits. absmax is overwritten.
struct NestAbsmax {
  Tensor codes, nested_absmax, offset;
  Tensor absmax;
  ConstTensor map;
  int blocksize = 256;
};

/// How the code in an 8-bit map is found.
enum class CodeRule : std::uint8_t {
  nearest,  ///< the nearest value, as bitsandbytes does on GPUs
  grid,     ///< the value nearest to on_grid(x), as its CPU library does
};
/// codes u8 [n] and absmax f32 [blocks] of x f32 [n]: the code of x * (1 / absmax). A block of zeros has codes 0 and
/// absmax 0 (a NaN is ignored in absmax and gets code 0).
struct Quantize8 {
  Tensor codes, absmax;
  ConstTensor x, map;  ///< map f32 [256], ascending
  int blocksize = 256;
  CodeRule rule = CodeRule::grid;
};
/// y[i] = map[codes[i]] * absmax[i / blocksize], y f32 [n].
struct Dequantize8 {
  Tensor y;
  ConstTensor codes, absmax, map;
  int blocksize = 256;
};
/// LLM.int8 weights: y[r, c] = codes[r, c] * scale[r] * f32(1 / 127), each operation rounded to f32 and the result to
/// y's f32, bf16 or f16. codes i8 [N, K], scale f32 [N]. y_stride as in Dequantize4.
struct DequantizeRows8 {
  Tensor y;
  ConstTensor codes, scale;
  std::int64_t y_stride = 0;
};
/// C [M, N] = or += alpha * (A [M, K] · W [N, K]^T + the GEMM `added`) + bias [N] for few rows (M <= kFewRows), without
/// materializing W: equals Dequantize4 followed by Gemm, on a GPU up to the order of sums. A and C: f32, bf16 (CUDA:
/// and f16). c_stride: elements from one row of C to the next; 0 means N.
struct Gemm4 {
  static constexpr std::int64_t kFewRows = 8;
  Sink c;
  ConstTensor a;
  Blocks4 w;
  double alpha = 1;
  ConstTensor bias = {};
  Factors added = {};
  std::int64_t c_stride = 0;
};

/// Gemm4 for LLM.int8 weights (codes i8 [N, K], scale f32 [N]): bitwise equal to DequantizeRows8 followed by Gemm. CPU
/// only.
struct GemmRows8 {
  Sink c;
  ConstTensor a;
  ConstTensor codes, scale;
  double alpha = 1;
  ConstTensor bias = {};
  Factors added = {};

  /// Whether this op supports that many rows on the device.
  static bool takes(Device device, std::int64_t rows) {
    return device.kind == DeviceKind::cpu && rows <= Gemm4::kFewRows;
  }
};

void run_cpu(Ctx&, const Dequantize4&);
void run_cuda(Ctx&, const Dequantize4&);
void run_cpu(Ctx&, const Quantize4&);
void run_cuda(Ctx&, const Quantize4&);
void run_cpu(Ctx&, const NestAbsmax&);
void run_cuda(Ctx&, const NestAbsmax&);
void run_cpu(Ctx&, const Quantize8&);
void run_cuda(Ctx&, const Quantize8&);
void run_cpu(Ctx&, const Dequantize8&);
void run_cuda(Ctx&, const Dequantize8&);
void run_cpu(Ctx&, const DequantizeRows8&);
void run_cuda(Ctx&, const DequantizeRows8&);
void run_cpu(Ctx&, const Gemm4&);
void run_cuda(Ctx&, const Gemm4&);  ///< without `added`
void run_cpu(Ctx&, const GemmRows8&);

inline void dequantize4(Ctx& ctx, const Dequantize4& a) {
  check_blocks(a.w);
  check(a.y.numel() == a.w.shape.numel(), "dequantize4: y has another size");
  check(a.y_stride == 0 || (a.w.shape.rank == 2 && a.y_stride >= a.w.shape[1]), "dequantize4: rows of y overlap");
  dispatch(ctx, a);
}
inline void quantize4(Ctx& ctx, const Quantize4& a) {
  const std::int64_t n = a.x.numel();
  check(is_blocksize4(a.blocksize), "quantize4: block sizes are powers of two from 32 to 4096");
  check(a.codes.numel() == (n + 1) / 2 && a.absmax.numel() == blocks_of(n, a.blocksize),
        "quantize4: codes or absmax have another size");
  dispatch(ctx, a);
}
inline void nest_absmax(Ctx& ctx, const NestAbsmax& a) {
  const std::int64_t n = a.absmax.numel();
  check(a.codes.numel() == n && a.nested_absmax.numel() == blocks_of(n, a.blocksize) && a.offset.numel() == 1,
        "nest_absmax: sizes differ");
  dispatch(ctx, a);
}
inline void quantize8(Ctx& ctx, const Quantize8& a) {
  const std::int64_t n = a.x.numel();
  check(
      a.blocksize > 0 && a.codes.numel() == n && a.absmax.numel() == blocks_of(n, a.blocksize) && a.map.numel() == 256,
      "quantize8: sizes differ");
  dispatch(ctx, a);
}
inline void dequantize8(Ctx& ctx, const Dequantize8& a) {
  const std::int64_t n = a.y.numel();
  check(
      a.blocksize > 0 && a.codes.numel() == n && a.absmax.numel() == blocks_of(n, a.blocksize) && a.map.numel() == 256,
      "dequantize8: sizes differ");
  dispatch(ctx, a);
}
inline void dequantize_rows8(Ctx& ctx, const DequantizeRows8& a) {
  check(a.codes.shape.rank == 2 && a.y.numel() == a.codes.numel() && a.scale.numel() == a.codes.shape[0],
        "dequantize_rows8: shapes differ");
  check(a.y_stride == 0 || a.y_stride >= a.codes.shape[1], "dequantize_rows8: rows of y overlap");
  dispatch(ctx, a);
}
inline void gemm4(Ctx& ctx, const Gemm4& g) {
  if (!g.c.wanted()) return;
  check_blocks(g.w);
  check(g.a.shape.rank == 2 && g.c.t.shape.rank == 2 && g.w.shape.rank == 2, "gemm4: operands are matrices");
  check(g.a.shape[0] <= Gemm4::kFewRows, "gemm4: too many rows");
  check(g.a.shape[1] == g.w.shape[1] && g.c.t.shape[0] == g.a.shape[0] && g.c.t.shape[1] == g.w.shape[0],
        "gemm4: shapes differ");
  check(!g.bias || g.bias.numel() == g.w.shape[0], "gemm4: bias has another length");
  check(g.c_stride == 0 || g.c_stride >= g.w.shape[0], "gemm4: rows of C overlap");
  if (g.c.t.numel() == 0) return;
  dispatch(ctx, g);
  if (ctx.device().kind != DeviceKind::cuda || !g.added.present()) return;
  Gemm added = added_to(g.c.t, g.added, g.alpha);
  added.c_stride = g.c_stride;
  gemm(ctx, added);
}
inline void gemm_rows8(Ctx& ctx, const GemmRows8& g) {
  if (!g.c.wanted()) return;
  check(g.a.shape.rank == 2 && g.c.t.shape.rank == 2 && g.codes.shape.rank == 2, "gemm_rows8: operands are matrices");
  check(GemmRows8::takes(ctx.device(), g.a.shape[0]), "gemm_rows8: too many rows, or not on a CPU");
  check(g.a.shape[1] == g.codes.shape[1] && g.c.t.shape[0] == g.a.shape[0] && g.c.t.shape[1] == g.codes.shape[0],
        "gemm_rows8: shapes differ");
  check(g.scale.numel() == g.codes.shape[0], "gemm_rows8: another number of scales");
  check(!g.bias || g.bias.numel() == g.codes.shape[0], "gemm_rows8: bias has another length");
  if (g.c.t.numel() > 0) run_cpu(ctx, g);
}

}  // namespace ops
}  // namespace qtrain
