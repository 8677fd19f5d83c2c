#pragma once
#include "kernels/elementwise.h"

namespace qtrain::ops {

/// Checks the 16-bit copy that an update writes of a parameter, if it writes one.
inline void check_weight_copy(ConstTensor copy, ConstTensor param) {
  check(!copy || (copy.numel() == param.numel() && size_of(copy.dtype) == 2 && param.dtype == DType::f32),
        "an update writes 16-bit copies of f32 parameters of the same length");
}
/// Queues an update. CUDA kernels write the copy themselves; a processor converts the parameter afterwards.
template <class Args>
void dispatch_with_copy(Ctx& ctx, const Args& a) {
  check_weight_copy(a.copy, a.param);
  dispatch(ctx, a);
  if (a.copy && ctx.device().kind == DeviceKind::cpu) copy(ctx, {.y = store(a.copy), .x = a.param});
}

}  // namespace qtrain::ops
