#include "kernels/adapter_grads.h"

namespace qtrain::ops {

void run_cpu(Ctx& ctx, const AdapterGrads& a) {
  apart(ctx, a);
}

}  // namespace qtrain::ops
