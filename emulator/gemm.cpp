#include "kernels/gemm.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/half.h"
#include "emulator/device.h"
#include "kernels/fp8.h"
#include "kernels/gemm_choices.h"
#include "kernels/gemm_key.h"
#include "kernels/gemm_library.h"
#include "kernels/gemm_workspaces.h"

/// GEMMs run on the CPU backend, unless the settings ask for the code that runs on a GPU (gemm=library): the harness
/// checks the order of work and the memory that it accesses.
namespace qtrain::ops {
namespace {

constexpr bool kHasLibrary = QTRAIN_HAS_BLASLT;

bool uses_library() {
  return emulation::settings().gemm_library;
}

ConstTensor on_host(ConstTensor t) {
  t.device = {};
  return t;
}

/// The CPU backend does not multiply float16: this computes in f32, with operands rounded to float16.
class WidenedGemm {
 public:
  WidenedGemm(const Gemm& g, DType operands) : gemm_(g) {
    gemm_.a = widened(g.a, stretch(g.a, g.a_stride), operands, a_);
    if (!is_fp8(g.b.dtype)) gemm_.b = widened(g.b, stretch(g.b, g.b_stride), operands, b_);
    if (g.bias) gemm_.bias = widened(g.bias, g.bias.numel(), g.bias.dtype, bias_);
    if (g.c.t.dtype == DType::f16) gemm_.c.t = {c_from(g), DType::f32, g.c.t.shape};
  }
  void run(Ctx& ctx, const Tensor& result) {
    run_cpu(ctx, gemm_);
    if (result.dtype == DType::f16) std::copy(c_.begin(), c_.end(), result.as<F16>());
  }

 private:
  static ConstTensor widened(ConstTensor t, std::int64_t elements, DType operands, std::vector<float>& values) {
    if (operands != DType::f16) return t;
    values.resize(static_cast<std::size_t>(elements));
    const auto round = [](auto x) { return static_cast<float>(F16(static_cast<float>(x))); };
    const auto convert = [&]<class T>() { std::transform(t.as<T>(), t.as<T>() + elements, values.begin(), round); };
    if (t.dtype == DType::f16)
      convert.template operator()<F16>();
    else
      dispatch_float(t.dtype, convert);
    return {reinterpret_cast<const std::byte*>(values.data()), DType::f32, t.shape};
  }
  std::byte* c_from(const Gemm& g) {
    const F16* c = g.c.t.as<F16>();
    c_.assign(c, c + stretch(g.c.t, g.c_stride));
    return reinterpret_cast<std::byte*>(c_.data());
  }

  Gemm gemm_;
  std::vector<float> a_, b_, bias_, c_;
};

/// Nothing is converted or autotuned here. The memory that a GPU uses for that is allocated, conversions that a GPU
/// would do are checked against what was reserved, and the algorithm that a GPU would choose is remembered.
struct Reserved {
  explicit Reserved(Device device) : library(device), choices("execution harness", {}) {}
  GemmWorkspaces library;
  std::optional<GemmMemory> memory;
  GemmChoices choices;

  /// Stores the only algorithm there is.
  void choose(MatmulPrecision matmul, const Gemm& g) {
    const std::string gemm = to_string(class_of(key_of(g, matmul)));
    if (!choices.find(gemm)) choices.remember(gemm, {});
  }

  void check_operands(MatmulPrecision matmul, const Gemm& g) const {
    if (!memory || g.a.dtype == DType::f64) return;
    if (multiplies_in_fp8(g)) {
      const std::int64_t depth = g.first().depth();
      const std::int64_t rows = g.first().rows(), columns = g.first().columns();
      check(fp8_bytes_of_a(g.fp8->a_block, {rows, columns, depth}) <= memory->converted_a &&
                (is_fp8(g.b.dtype) || fp8_bytes(g.fp8->b_block, columns, depth) <= memory->converted_b),
            "a GEMM in FP8 encodes more than was reserved");
      return;
    }
    const DType type = gemm_operand_type(matmul, g.a.dtype, g.b.dtype);
    const auto converted = [&](ConstTensor t, std::int64_t stride) {
      return t.dtype == type ? 0 : static_cast<std::size_t>(stretch(t, stride)) * size_of(type);
    };
    const DType result = g.c.t.dtype;
    check(result == DType::f32 || result == type, "a GEMM of a model is f32 or has the type of its operands");
    const std::size_t bias = g.bias.dtype == result ? 0 : static_cast<std::size_t>(g.bias.numel()) * size_of(result);
    check(converted(g.a, g.a_stride) <= memory->converted_a && converted(g.b, g.b_stride) <= memory->converted_b &&
              (!g.bias || bias <= memory->converted_bias),
          "a GEMM converts more than was reserved");
  }
};

/// The scales of a stored operand [rows, columns], without those that only fill up rows of scales for squares.
ConstTensor used_scales(const Gemm& g) {
  ConstTensor used = g.fp8->b_scale;
  if (used.shape.rank != 2) return used.reshaped({1, used.numel()});
  used.shape.dims[1] = std::min(used.shape[1], (g.b.shape[1] + kFp8Block - 1) / kFp8Block);
  return used;
}

/// Without the memory of an empty optional, which nothing has written to.
std::vector<std::byte> arguments_of(const Gemm& g) {
  const Gemm::Fp8 types = g.fp8.value_or(Gemm::Fp8{g.a.dtype, g.b.dtype});
  return emulation::bytes_of(g.c, g.a, g.b, g.transpose_a, g.transpose_b, g.alpha, g.bias, g.a_stride, g.b_stride,
                             g.c_stride, g.added, g.residual, types.a, types.b, types.b_scale, types.a_largest,
                             types.a_block, types.b_block);
}

}  // namespace

void run_cuda(Ctx& ctx, const GemmMemory& memory) {
  if constexpr (kHasLibrary)
    if (uses_library()) return cuda::reserve_gemms(ctx, memory);
  ctx.kept<Reserved>().memory = memory;
}

void run_cuda(Ctx& ctx, const Gemm& g) {
  if constexpr (kHasLibrary)
    if (uses_library()) return cuda::run_gemm(ctx, g);
  auto& reserved = ctx.kept<Reserved>();
  reserved.check_operands(ctx.matmul(), g);
  reserved.choose(ctx.matmul(), g);
  const Stream::Launch launch(ctx.stream(), "gemm", [&] { return sizes_of(key_of(g, ctx.matmul())); });
  const ConstTensor scale = g.fp8 ? g.fp8->b_scale : ConstTensor{};
  const ConstTensor largest = g.fp8 ? g.fp8->a_largest : ConstTensor{};
  const auto run = [&ctx, g, scale, largest] {
    const auto each_row = [](ConstTensor t, std::int64_t stride, const auto& act) {
      const std::size_t width = static_cast<std::size_t>(t.shape[1]) * size_of(t.dtype);
      const std::size_t step = static_cast<std::size_t>(row_step(t, stride)) * size_of(t.dtype);
      for (std::int64_t row = 0; row < t.shape[0]; ++row) act(t.data + static_cast<std::size_t>(row) * step, width);
    };
    const auto readable = [&](ConstTensor t, std::int64_t stride, std::string_view what) {
      each_row(t, stride, [&](const std::byte* p, std::size_t n) { emulation::check_readable(p, n, what); });
    };
    readable(g.a, g.a_stride, "gemm: the first operand");
    readable(g.b, g.b_stride, "gemm: the second operand");
    if (g.bias) emulation::check_readable(g.bias.data, g.bias.bytes(), "gemm: the bias");
    if (g.c.adds()) readable(g.c.t, g.c_stride, "gemm: the result that is added to");
    if (g.residual) readable(g.residual, 0, "gemm: the residual");
    if (scale) readable(used_scales(g), scale.shape.rank == 2 ? scale.shape[1] : 0, "gemm: the scales of an operand");
    if (largest) emulation::check_readable(largest.data, largest.bytes(), "gemm: the largest magnitudes of an operand");
    each_row(g.c.t, g.c_stride,
             [](const std::byte* p, std::size_t n) { emulation::check_writable(p, n, "gemm: the result"); });
    Gemm host = g;
    host.a = on_host(g.a);
    host.b = on_host(g.b);
    host.bias = on_host(g.bias);
    host.c.t.device = {};
    if (scale) host.fp8->b_scale = on_host(scale);
    if (largest) host.fp8->a_largest = on_host(largest);
    if (g.residual) {
      std::copy_n(g.residual.data, g.residual.bytes(), g.c.t.data);
      host = added_to_residual(host);
    }
    WidenedGemm(host, gemm_operand_type(ctx.matmul(), g.a.dtype, g.b.dtype)).run(ctx, host.c.t);
    each_row(g.c.t, g.c_stride, [&](const std::byte* p, std::size_t n) {
      emulation::mark(g.c.t.data + (p - g.c.t.data), n, emulation::State::initialized);
    });
  };
  const auto touched = [](ConstTensor t, std::int64_t stride) {
    return static_cast<std::size_t>(stretch(t, stride)) * size_of(t.dtype);
  };
  std::vector<emulation::Touch> touches{emulation::reads(g.a.data, touched(g.a, g.a_stride)),
                                        emulation::reads(g.b.data, touched(g.b, g.b_stride)),
                                        emulation::writes(g.c.t.data, touched(g.c.t, g.c_stride))};
  if (g.residual) touches.push_back(emulation::reads(g.residual.data, g.residual.bytes()));
  for (const ConstTensor& t : {scale, largest})
    if (t) touches.push_back(emulation::reads(t.data, t.bytes()));
  emulation::enqueue(ctx.stream().handle(),
                     {.run = run, .name = "gemm", .inputs = arguments_of(g), .touches = std::move(touches)});
}

}  // namespace qtrain::ops

namespace qtrain::cuda {

GemmChoices& gemm_choices(Ctx& ctx) {
  if constexpr (ops::kHasLibrary)
    if (ops::uses_library()) return choices_of_gemms(ctx);
  return ctx.kept<ops::Reserved>().choices;
}

}  // namespace qtrain::cuda
