#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

enum class Transpose : std::uint8_t { no, yes };

/// C [M, N] = or += alpha * op(A) [M, K] · op(B) [K, N] + bias [N].
/// A and B: f64 both, or any mix of f32 and bf16 (CUDA: and f16), rank 2; `transpose_a` says that A is stored [K, M],
/// and B alike [N, K]. C: f64, f32 or a 16-bit type. The result depends on shapes and values only, never on the number
/// of threads. Multiplies in ctx.matmul(); on a processor where bf16 products are not faster (see kernels/cpu/isa.h)
/// and for a few rows (M <= 8 with a transposed B) MatmulPrecision::bf16 computes in f32 without rounding the operands.
/// K = 0 gives alpha-free zeros (plus bias).
struct Gemm {
  Sink c;
  ConstTensor a, b;
  Transpose transpose_a = Transpose::no, transpose_b = Transpose::no;
  double alpha = 1;
  ConstTensor bias = {};
};
void run_cpu(Ctx&, const Gemm&);
void run_cuda(Ctx&, const Gemm&);

/// The most bytes of A, of B and of biases that the products of a model convert at a time. A GPU multiplies operands of
/// one type and adds biases of the result's; others are converted first, in memory of their own.
struct GemmMemory {
  std::size_t converted_a = 0, converted_b = 0, converted_bias = 0;

  std::size_t total() const { return converted_a + converted_b + converted_bias; }
};
inline void run_cpu(Ctx&, const GemmMemory&) {}
void run_cuda(Ctx&, const GemmMemory&);

/// Takes that memory now, so that no product has to.
inline void reserve(Ctx& ctx, const GemmMemory& memory) {
  dispatch(ctx, memory);
}

/// Bytes that the library of a GPU may use while it computes: 32 MiB from Hopper on, as NVIDIA recommends, else 8 MiB.
inline std::size_t gemm_workspace(int compute_capability_major) {
  return (compute_capability_major >= 9 ? std::size_t{32} : std::size_t{8}) << 20;
}

/// The type that a GPU multiplies both operands in.
inline DType gemm_operand_type(MatmulPrecision matmul, DType a, DType b) {
  const bool half = a != DType::f32 && b != DType::f32;
  if (half && a == b) return a;
  switch (matmul) {
    case MatmulPrecision::bf16: return DType::bf16;
    case MatmulPrecision::f16: return DType::f16;
    default: return DType::f32;
  }
}

inline void gemm(Ctx& ctx, const Gemm& g) {
  if (!g.c.wanted()) return;
  check(g.a.shape.rank == 2 && g.b.shape.rank == 2 && g.c.t.shape.rank == 2, "gemm: operands are matrices");
  const int ka = g.transpose_a == Transpose::yes ? 0 : 1, kb = g.transpose_b == Transpose::yes ? 1 : 0;
  check(g.a.shape[ka] == g.b.shape[kb], "gemm: inner dimensions differ");
  check(g.c.t.shape[0] == g.a.shape[1 - ka] && g.c.t.shape[1] == g.b.shape[1 - kb], "gemm: result has another shape");
  check(!g.bias || g.bias.numel() == g.c.t.shape[1], "gemm: bias has another length");
  if (g.c.t.numel() == 0) return;
  dispatch(ctx, g);
}

}  // namespace qtrain::ops
