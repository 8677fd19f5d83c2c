#pragma once
#include "model/layer/layer.h"
#include "model/operand_copies.h"
#include "model/parameters.h"

namespace qtrain {

enum class KeepCopies : std::uint8_t { no, yes };

/// Copies of weights in the form that GEMMs read: quantized weights expanded, and float32 weights in the 16-bit type of
/// a GPU's GEMMs. They are declared before memory is allocated; none are kept unless requested.
class WeightCopies {
 public:
  explicit WeightCopies(Device device) : dense_("dense copies", device), operands_(device) {}

  /// Keeps dense copies of all quantized weights, instead of expanding each for each GEMM.
  void keep_dense(const Parameters& params, DType type);
  /// Keeps copies of GEMM operands if `type` is a 16-bit type; trained vectors that lie between operands in memory are
  /// copied too.
  void keep_operands(const Parameters& params, DType type);
  void allocate();

  /// Dense copies, under the names of their weights; empty unless they are kept.
  const ParamStore& dense() const { return dense_; }
  const OperandCopies& operands() const { return operands_; }
  bool has_dense() const { return !dense_.all().empty(); }

  void fill_dense(Ctx& ctx, const Parameters& params) const;
  /// Updates all copies from the weights.
  void fill_operands(Ctx& ctx) const { operands_.fill(ctx); }

  /// A linear layer in the form that stages read.
  Projection acquire(const LinearParams& p, double dropout) const;
  /// Likewise, but without operand copies; for a layer with an adapter.
  Projection acquire_exact(const LinearParams& p, double dropout) const;
  ExpertsWeight acquire(const ExpertsParams& p) const;
  LayerWeights acquire(const LayerParams& layer, double dropout) const;
  ConstTensor operand(const Param* p) const { return p ? operands_.of(*p) : Tensor{}; }

 private:
  ParamStore dense_;
  OperandCopies operands_;
};

}  // namespace qtrain
