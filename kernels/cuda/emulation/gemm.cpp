#include "kernels/gemm.h"

#include <optional>

#include "core/device/emulated.h"

/// Products are the CPU's: what the harness checks is the order of the work and the memory that it touches.
namespace qtrain::ops {
namespace {

ConstTensor on_host(ConstTensor t) {
  t.device = {};
  return t;
}

/// Nothing is converted here; what a GPU would convert is held against what was reserved for it.
struct Reserved {
  explicit Reserved(Device) {}
  std::optional<GemmMemory> memory;

  void check_operands(MatmulPrecision matmul, const Gemm& g) const {
    if (!memory || g.a.dtype == DType::f64) return;
    const DType type = gemm_operand_type(matmul, g.a.dtype, g.b.dtype);
    const auto converted = [&](ConstTensor t) {
      return t.dtype == type ? 0 : static_cast<std::size_t>(t.numel()) * size_of(type);
    };
    check(converted(g.a) <= memory->converted_a && converted(g.b) <= memory->converted_b,
          "a product converts more than was reserved");
  }
};

}  // namespace

void run_cuda(Ctx& ctx, const GemmMemory& memory) {
  ctx.kept<Reserved>().memory = memory;
}

void run_cuda(Ctx& ctx, const Gemm& g) {
  ctx.kept<Reserved>().check_operands(ctx.matmul(), g);
  ctx.stream().launched("gemm");
  const auto run = [&ctx, g] {
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
  };
  emulation::enqueue(ctx.stream().handle(), {.run = run, .name = "gemm", .inputs = emulation::bytes_of(g)});
}

}  // namespace qtrain::ops
