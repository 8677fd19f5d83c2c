#pragma once
#include <unordered_map>
#include <vector>

#include "core/param_store.h"

namespace qtrain {

/// Copies of float32 parameters in the 16-bit type of a GPU's GEMMs, converted together after each update instead of
/// separately for each GEMM.
class OperandCopies {
 public:
  explicit OperandCopies(Device device) : copies_("16-bit copies", device) {}

  /// Declares the copy of an f32 parameter; call it before `allocate`. Contiguous parameters that are declared in order
  /// are converted in one pass.
  void keep(const Param& p, DType type);
  void allocate() { copies_.allocate(); }
  std::size_t bytes() const { return copies_.values().planned(); }

  bool has(const Param& p) const { return copy_of_.contains(&p); }
  /// The copy of a parameter, or the parameter itself if it has none.
  Tensor of(const Param& p) const;
  void fill(Ctx& ctx) const { convert(ctx, originals_); }
  /// The trained parameters that have copies.
  const std::vector<const Param*>& trained() const { return trained_; }
  /// Updates the copies of these parameters.
  void convert(Ctx& ctx, const std::vector<const Param*>& params) const;

 private:
  ParamStore copies_;
  std::vector<const Param*> originals_, trained_;
  std::unordered_map<const Param*, const Param*> copy_of_;
};

}  // namespace qtrain
