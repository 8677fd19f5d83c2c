#pragma once
#include <optional>
#include <variant>
#include <vector>

#include "kernels/quantize.h"

namespace qtrain {

/// A low-rank adapter of a linear layer: y += scale * B (A dropout(x)); A [r, in], B [out, r]. Layers that read the
/// same input share its dropout mask, that of the first adapted layer's stream. With a magnitude m [out] (DoRA), where
/// norm [out] holds the L2 norms of the rows of V = W + scale * B A:
///   y = W x + (m / norm - 1) W dropout(x) + m / norm scale * B A dropout(x) + bias,
/// as in PEFT; without dropout that is m / norm V x + bias.
struct LoraWeights {
  ConstTensor a = {}, b = {};
  ConstTensor magnitude = {}, norm = {};
  Sink da = discard(), db = discard(), dmagnitude = discard();
  double scale = 1;
  double dropout = 0;
  std::uint64_t stream = 0;  ///< of the dropout mask

  bool present() const { return a.shape.rank == 2; }
  std::int64_t rank() const { return present() ? a.shape[0] : 0; }
  bool decomposed() const { return magnitude.shape.rank == 1; }
};

/// LLM.int8: codes i8 [out, in], and an f32 scale per row.
struct Rows8 {
  ConstTensor codes, scale;
};
/// FP8: codes f8_e4m3 [out, in], and an f32 scale for each block of rows and columns (see ops::ExpandFp8).
struct Fp8Weight {
  ConstTensor codes, scales;
  Shape block;
};
/// A frozen quantized weight. It is expanded for the duration of a GEMM, in memory from the caller, unless the GEMM
/// reads its codes: those of few rows, and those in FP8 with one scale.
using QuantizedWeight = std::variant<ops::Blocks4, Rows8, Fp8Weight>;
/// Writes the dense weight to y [out, in], f32 or a 16-bit type.
void expand(Ctx& ctx, const QuantizedWeight& w, Tensor y);
/// Likewise, to rows that are `stride` elements apart.
struct SpacedRows {
  Tensor y;
  std::int64_t stride;
};
void expand(Ctx& ctx, const QuantizedWeight& w, const SpacedRows& to);

/// The scales of GEMMs in FP8 (docs/kernels/quantization.md). Tensorwise: one per operand, gradients in E5M2.
/// Blockwise: one for 128 x 128 weights and for 128 neighbors of other operands, all in E4M3.
enum class Fp8Recipe : std::uint8_t { tensorwise, blockwise };

/// A linear layer y = x W^T + bias with an optional adapter. W [out, in], dense or quantized.
struct Projection {
  ConstTensor weight = {}, bias = {};
  std::optional<QuantizedWeight> quantized = {};  ///< instead of `weight`
  Sink dweight = discard(), dbias = discard();
  LoraWeights lora = {};
  /// Compute the GEMMs with W, and that of its gradient, in FP8 (kernels/fp8.h).
  std::optional<Fp8Recipe> fp8 = {};
  bool fp8_forward = true;  ///< that of y, too; otherwise only those of gradients

  bool trains() const { return dweight.wanted() || dbias.wanted() || lora.da.wanted(); }
};

/// Layers that read the same input. Their adapters' A x are stored side by side, R columns in all; adapters whose A are
/// contiguous in memory share one GEMM. If x has at least R more columns in memory (x_stride), layers and adapters are
/// one GEMM, y = [x | A x] [W | B]^T. There must be adapters then, but none with dropout or a magnitude, and no layer
/// in FP8.
struct ProjectionForward {
  struct Layer {
    const Projection& layer;
    Tensor y;  ///< [T, out]
  };
  std::vector<Layer> layers;
  std::int64_t y_stride = 0;  ///< elements between rows, if all y are columns of one matrix; otherwise 0
  Tensor lora_x;   ///< [T, at least R]: scale * A dropout(x) in its first T R elements, saved for the gradient
  ConstTensor x;   ///< [T, in]
  Tensor scratch;  ///< for inputs after dropout and gradients of lora_x
  ConstTensor dropout_seed = {};
  /// For quantized weights: out * in elements, or those of all layers together with a y_stride. With an x_stride: that
  /// many elements for each output of all layers.
  Tensor dense = {};
  std::int64_t x_stride = 0;   ///< elements between rows of x, if A x is computed in the columns after it; otherwise 0
  Tensor after_x = {};         ///< [T, R], those columns; lora_x, if it is not empty, gets a copy
  ConstTensor residual = {};   ///< [T, out]: added to y, for one layer without a magnitude
  ConstTensor x_largest = {};  ///< for GEMMs in FP8, if known: the largest magnitude of each row of x
};
struct ProjectionBackward {
  struct Layer {
    const Projection& layer;
    ConstTensor dy;
  };
  std::vector<Layer> layers;
  std::int64_t dy_stride = 0;  ///< as y_stride, for dy
  Sink dx;
  ConstTensor x, lora_x;
  Tensor scratch;
  ConstTensor dropout_seed = {};
  Tensor dense = {};
  /// As in ProjectionForward; lora_x is then [T, R] with rows that are lora_stride elements apart.
  std::int64_t x_stride = 0, lora_stride = 0;
  /// For one layer with an adapter, if dx is one GEMM, [dy | du] [W; A]: memory for [dy | du], and the elements between
  /// its rows; otherwise 0. `dense` then has r * in more elements, and is used by dense weights, too. Without tensor
  /// cores, there are separate GEMMs.
  Tensor joint = {};
  std::int64_t joint_stride = 0;
  ConstTensor dy_largest = {};  ///< as x_largest, of the matrix that has all dy
};

/// Layers whose y are neighboring columns of one matrix, and whose weights and biases are contiguous, are one GEMM.
void project(Ctx& ctx, const ProjectionForward& f);
/// Computes only lora_x; the layers' y may be empty.
void project_to_ranks(Ctx& ctx, const ProjectionForward& f);
/// Computes dx and every wanted weight gradient. Layers whose dy are such columns, and whose weights and gradients are
/// contiguous, are one GEMM for dx and one for the gradients of their weights.
void project_grad(Ctx& ctx, const ProjectionBackward& b);

/// Fills `norm` [out] with the L2 norms of the rows of the current W + scale * B A; `dense` as in ProjectionForward.
void measure_rows(Ctx& ctx, const Projection& p, Tensor norm, Tensor dense);

/// Number of scratch elements that project and project_grad need in training. `tokens`: T; `in`: the widest input;
/// `ranks`: summed over the layers; `decomposed`: outputs of the widest layer with a magnitude.
struct ProjectionSizes {
  std::int64_t tokens, in, ranks, decomposed = 0;
};
std::int64_t projection_scratch(const ProjectionSizes& sizes, double dropout);

}  // namespace qtrain
