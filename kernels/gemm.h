#pragma once
#include <array>
#include <optional>
#include <vector>

#include "kernels/dispatch.h"

namespace qtrain::ops {

enum class Transpose : std::uint8_t { no, yes };

/// A GEMM op(A) [M, K] · op(B) [K, N]. With `transpose_a` A is stored as [K, M], with `transpose_b` B as [N, K]. A
/// stride is the distance between rows in elements, for a matrix that is a column slice of a wider one; 0: its own
/// width.
struct Factors {
  ConstTensor a, b;
  Transpose transpose_a = Transpose::no, transpose_b = Transpose::no;
  std::int64_t a_stride = 0, b_stride = 0;

  bool present() const { return a.shape.rank > 0; }
  std::int64_t rows() const { return a.shape[transpose_a == Transpose::yes ? 1 : 0]; }
  std::int64_t columns() const { return b.shape[transpose_b == Transpose::yes ? 0 : 1]; }
  std::int64_t depth() const { return a.shape[transpose_a == Transpose::yes ? 0 : 1]; }
};

/// Which values of an operand in FP8 share a scale: all of them; 128 neighbors along the inner dimension of the GEMM;
/// or 128 x 128.
enum class Fp8Block : std::uint8_t { matrix, vector, square };

/// C [M, N] = or += alpha * (op(A) · op(B) + every GEMM in `added`) + bias [N] + residual [M, N]. The operands are as
/// in Factors. A and B: all f64, or any mix of f32 and bf16 (CUDA: and f16), rank 2. C: f64, f32 or a 16-bit type. The
/// result depends only on shapes and values, never on the number of threads; on a CPU a row of C has the same bits for
/// any number of rows. Multiplies in ctx.matmul(); on a CPU where bf16 GEMMs are not faster (see kernels/cpu/isa.h),
/// MatmulPrecision::bf16 computes in f32 without rounding the operands. K = 0 gives zeros (plus bias).
struct Gemm {
  Sink c;
  ConstTensor a, b;
  Transpose transpose_a = Transpose::no, transpose_b = Transpose::no;
  double alpha = 1;
  ConstTensor bias = {};
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  /// Added before the sum is rounded, if C is stored without a stride; of its type, and not the same memory.
  ConstTensor residual = {};
  /// Further GEMMs added into the same result: one pass over C instead of several.
  std::array<Factors, 3> added = {};
  /// The types in which A and B are encoded, to multiply them in FP8 (kernels/fp8.h): f8_e4m3, or f8_e5m2 for one of
  /// them. With a b_scale, B is stored in its type: codes [N, K], whose values are multiplied by these scales, f32 of
  /// the shape fp8_scales. a_largest: see ToFp8::largest. Either both blocks are whole matrices, or neither is and one
  /// is a vector. The GEMMs in `added` are not affected.
  struct Fp8 {
    DType a, b;
    ConstTensor b_scale = {};
    ConstTensor a_largest = {};
    Fp8Block a_block = Fp8Block::matrix, b_block = Fp8Block::matrix;
  };
  std::optional<Fp8> fp8 = {};

  Factors first() const { return {a, b, transpose_a, transpose_b, a_stride, b_stride}; }
  /// Whether the result is a sum with a matrix in memory.
  bool adds() const { return c.adds() || residual; }
};
/// Elements between rows of a matrix, with a stride as in Factors.
inline std::int64_t row_step(const ConstTensor& matrix, std::int64_t stride) {
  return stride == 0 ? matrix.shape[1] : stride;
}
/// Elements from the first to the last of such a matrix, both included.
inline std::int64_t stretch(const ConstTensor& matrix, std::int64_t stride) {
  const Shape& s = matrix.shape;
  return s.numel() == 0 ? 0 : (s[0] - 1) * row_step(matrix, stride) + s[1];
}
/// c += alpha * the GEMM of `f`.
Gemm added_to(Tensor c, const Factors& f, double alpha);
/// The equivalent sequence of GEMMs without `added`, each adding to the result of the previous one. A GPU may run the
/// first one last.
std::vector<Gemm> one_by_one(const Gemm& g);
/// The GEMM that adds to its residual, which it expects in C.
Gemm added_to_residual(const Gemm& g);
void run_cpu(Ctx&, const Gemm&);
void run_cuda(Ctx&, const Gemm&);  ///< for a single GEMM

/// The largest numbers of bytes of A, B and biases that a model's GEMMs convert at a time. A GPU multiplies operands of
/// one type and adds biases of the result's type; others are first converted into separate memory.
struct GemmMemory {
  std::size_t converted_a = 0, converted_b = 0, converted_bias = 0;

  std::size_t total() const { return converted_a + converted_b + converted_bias; }
};
inline void run_cpu(Ctx&, const GemmMemory&) {}
void run_cuda(Ctx&, const GemmMemory&);

/// Allocates that memory now, so that no GEMM has to.
inline void reserve(Ctx& ctx, const GemmMemory& memory) {
  dispatch(ctx, memory);
}

/// Workspace bytes for the GPU's GEMM library: 32 MiB from Hopper on, as NVIDIA recommends, else 8 MiB.
inline std::size_t gemm_workspace(int compute_capability_major) {
  return (compute_capability_major >= 9 ? std::size_t{32} : std::size_t{8}) << 20;
}

/// Size of the memory for autotuning GEMMs that accumulate into their result.
inline constexpr std::size_t kGemmTrialBytes = std::size_t{64} << 20;

/// The type that a GPU converts both operands to.
inline DType gemm_operand_type(MatmulPrecision matmul, DType a, DType b) {
  const bool half = a != DType::f32 && b != DType::f32;
  if (half && a == b) return a;
  switch (matmul) {
    case MatmulPrecision::bf16: return DType::bf16;
    case MatmulPrecision::f16: return DType::f16;
    default: return DType::f32;
  }
}

void gemm(Ctx& ctx, const Gemm& g);

}  // namespace qtrain::ops
