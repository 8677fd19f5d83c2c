#include "kernels/gemm.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/device/emulated.h"
#include "core/half.h"

/// Products are the CPU's: what the harness checks is the order of the work and the memory that it touches.
namespace qtrain::ops {
namespace {

ConstTensor on_host(ConstTensor t) {
  t.device = {};
  return t;
}

/// The CPU multiplies no float16: there the product is one in f32, of operands that are rounded to float16.
class WidenedProduct {
 public:
  WidenedProduct(const Gemm& g, DType operands) : product_(g) {
    product_.a = widened(g.a, operands, a_);
    product_.b = widened(g.b, operands, b_);
    if (g.bias) product_.bias = widened(g.bias, g.bias.dtype, bias_);
    if (g.c.t.dtype == DType::f16) product_.c.t = {c_from(g.c.t), DType::f32, g.c.t.shape};
  }
  void run(Ctx& ctx, const Tensor& result) {
    run_cpu(ctx, product_);
    if (result.dtype == DType::f16) std::copy(c_.begin(), c_.end(), result.as<F16>());
  }

 private:
  static ConstTensor widened(ConstTensor t, DType operands, std::vector<float>& values) {
    if (operands != DType::f16) return t;
    values.resize(static_cast<std::size_t>(t.numel()));
    const auto round = [](auto x) { return static_cast<float>(F16(static_cast<float>(x))); };
    const auto convert = [&]<class T>() { std::transform(t.as<T>(), t.as<T>() + t.numel(), values.begin(), round); };
    if (t.dtype == DType::f16)
      convert.template operator()<F16>();
    else
      dispatch_float(t.dtype, convert);
    return {reinterpret_cast<const std::byte*>(values.data()), DType::f32, t.shape};
  }
  std::byte* c_from(const Tensor& c) {
    c_.assign(c.as<F16>(), c.as<F16>() + c.numel());
    return reinterpret_cast<std::byte*>(c_.data());
  }

  Gemm product_;
  std::vector<float> a_, b_, bias_, c_;
};

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
    const DType result = g.c.t.dtype;
    check(result == DType::f32 || result == type, "a product of a model is f32 or has the type of its operands");
    const std::size_t bias = g.bias.dtype == result ? 0 : static_cast<std::size_t>(g.bias.numel()) * size_of(result);
    check(converted(g.a) <= memory->converted_a && converted(g.b) <= memory->converted_b &&
              (!g.bias || bias <= memory->converted_bias),
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
    host.bias = on_host(g.bias);
    host.c.t.device = {};
    WidenedProduct(host, gemm_operand_type(ctx.matmul(), g.a.dtype, g.b.dtype)).run(ctx, host.c.t);
    emulation::mark(g.c.t.data, g.c.t.bytes(), emulation::State::initialised);
  };
  const auto read = [](ConstTensor t) { return emulation::reads(t.data, t.bytes()); };
  emulation::enqueue(ctx.stream().handle(),
                     {.run = run,
                      .name = "gemm",
                      .inputs = emulation::bytes_of(g),
                      .touches = {read(g.a), read(g.b), emulation::writes(g.c.t.data, g.c.t.bytes())}});
}

}  // namespace qtrain::ops
