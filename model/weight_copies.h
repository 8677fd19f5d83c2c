#pragma once
#include "model/layer/layer.h"
#include "model/operand_copies.h"
#include "model/parameters.h"

namespace qtrain {

enum class KeepCopies : std::uint8_t { no, yes };

/// Weights once more in the form that GEMMs read: quantized ones made dense, and float32 ones in the 16-bit type of a
/// GPU's operands. Declared before there is memory; none are kept unless asked for.
class WeightCopies {
 public:
  explicit WeightCopies(Device device) : dense_("dense copies", device), operands_(device) {}

  /// Dense copies of all quantized weights, instead of making each dense for each GEMM.
  void keep_dense(const Parameters& params, DType type);
  /// Copies of what GEMMs read, and trained vectors between them, in a 16-bit type; nothing for other types.
  void keep_operands(const Parameters& params, DType type);
  void allocate();

  /// Dense copies under the names of their weights; empty unless they are kept.
  const ParamStore& dense() const { return dense_; }
  const OperandCopies& operands() const { return operands_; }
  bool has_dense() const { return !dense_.all().empty(); }

  void fill_dense(Ctx& ctx, const Parameters& params) const;
  /// The copies, all of them or those of trained weights, become what the weights are.
  void fill_operands(Ctx& ctx) const { operands_.fill(ctx); }
  void refresh_operands(Ctx& ctx) const { operands_.refresh(ctx); }

  /// A linear layer as stages read it.
  Projection acquire(const LinearParams& p, double dropout) const;
  /// The same without copies of operands, of a layer with an adapter.
  Projection acquire_exact(const LinearParams& p, double dropout) const;
  ExpertsWeight acquire(const ExpertsParams& p) const;
  LayerWeights acquire(const LayerParams& layer, double dropout) const;
  ConstTensor operand(const Param* p) const { return p ? operands_.of(*p) : Tensor{}; }

 private:
  ParamStore dense_;
  OperandCopies operands_;
};

}  // namespace qtrain
