#include "kernels/attention.h"

#include "kernels/cpu/attention_reference.h"

namespace qtrain::ops {

void run_cpu(Ctx& ctx, const Attention& a) {
  dispatch_float(a.q.dtype, [&]<class T>() { attention_reference<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const AttentionGrad& a) {
  dispatch_float(a.q.dtype, [&]<class T>() { attention_grad_reference<T>(ctx, a); });
}

}  // namespace qtrain::ops
