#include "kernels/gemm.h"

#include "core/device/emulated.h"

/// Products are the CPU's: what the harness checks is the order of the work and the memory that it touches.
namespace qtrain::ops {
namespace {

ConstTensor on_host(ConstTensor t) {
  t.device = {};
  return t;
}

}  // namespace

void run_cuda(Ctx& ctx, const Gemm& g) {
  ctx.stream().launched("gemm");
  emulation::enqueue(ctx.stream().handle(), [&ctx, g] {
    emulation::check_readable(g.a.data, g.a.bytes(), "gemm: the first operand");
    emulation::check_readable(g.b.data, g.b.bytes(), "gemm: the second operand");
    if (g.bias) emulation::check_readable(g.bias.data, g.bias.bytes(), "gemm: the bias");
    if (g.c.adds()) emulation::check_readable(g.c.t.data, g.c.t.bytes(), "gemm: the result that is added to");
    emulation::check_writable(g.c.t.data, g.c.t.bytes(), "gemm: the result");
    Gemm host = g;
    host.a = on_host(g.a);
    host.b = on_host(g.b);
    host.c.t.device = {};
    run_cpu(ctx, host);
    emulation::mark(g.c.t.data, g.c.t.bytes(), emulation::State::initialised);
  });
}

}  // namespace qtrain::ops
