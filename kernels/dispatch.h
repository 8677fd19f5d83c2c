#pragma once
#include "core/context.h"
#include "kernels/op_name.h"

namespace qtrain::ops {

inline constexpr bool kHasCuda = QTRAIN_HAS_CUDA;

/// Routes an op's arguments to the backend of `ctx`: run_cpu(ctx, args) or run_cuda(ctx, args), declared next to the
/// argument struct. A missing kernel is a link error.
template <class Args>
void dispatch(Ctx& ctx, const Args& args) {
  if (ctx.device().kind == DeviceKind::cpu) {
    const Stream::Launch launch(ctx.stream(), op_name<Args>());  // GPU kernels open their own Launch
    return run_cpu(ctx, args);
  }
  if constexpr (kHasCuda) return run_cuda(ctx, args);
  fail(ErrorKind::usage, {.cause = "this build has no CUDA backend", .remedy = "use --device cpu"});
}

}  // namespace qtrain::ops
