#pragma once
#include <unordered_map>
#include <vector>

#include "core/param_store.h"

namespace qtrain {

/// Float32 parameters once more, in the 16-bit type that a GPU multiplies in: converted together after each update,
/// instead of one by one for each GEMM.
class OperandCopies {
 public:
  explicit OperandCopies(Device device) : copies_("16-bit copies", device) {}

  /// Declares the copy of an f32 parameter, before `allocate`. Where contiguous ones are declared
  /// in that order, one pass converts them all.
  void keep(const Param& p, DType type);
  void allocate() { copies_.allocate(); }
  std::size_t bytes() const { return copies_.values().planned(); }

  bool has(const Param& p) const { return copy_of_.contains(&p); }
  /// The copy of a parameter, or its own value where none is kept.
  Tensor of(const Param& p) const;
  void fill(Ctx& ctx) const { convert(ctx, originals_); }
  /// Those of trained parameters.
  void refresh(Ctx& ctx) const { convert(ctx, trained_); }

 private:
  void convert(Ctx& ctx, const std::vector<const Param*>& params) const;

  ParamStore copies_;
  std::vector<const Param*> originals_, trained_;
  std::unordered_map<const Param*, const Param*> copy_of_;
};

}  // namespace qtrain
