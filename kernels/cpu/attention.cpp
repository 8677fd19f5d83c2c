#include "kernels/attention.h"

#include "kernels/cpu/attention_blocked.h"
#include "kernels/cpu/attention_reference.h"

namespace qtrain::ops {

void run_cpu(Ctx& ctx, const Attention& a) {
  if (a.q.dtype == DType::f64) return attention_reference<double>(ctx, a);
  if (a.q.dtype == DType::bf16) return attention_blocked<Bf16>(ctx, a);
  attention_blocked<float>(ctx, a);
}
void run_cpu(Ctx& ctx, const AttentionGrad& a) {
  if (a.q.dtype == DType::f64) return attention_grad_reference<double>(ctx, a);
  if (a.q.dtype == DType::bf16) return attention_grad_blocked<Bf16>(ctx, a);
  attention_grad_blocked<float>(ctx, a);
}

}  // namespace qtrain::ops
