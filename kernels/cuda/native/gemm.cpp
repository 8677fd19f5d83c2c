// gemm() over cuBLASLt.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/native/gemm_plan.h"
#include "kernels/elementwise.h"

namespace qtrain::ops {
namespace {

using cuda::Blaslt;
using cuda::ProductKey;
using cuda::ProductPlan;
using cuda::Workspace;

std::uint32_t alignment_of(const void* p) {
  return std::uint32_t{1} << std::min(8, std::countr_zero(reinterpret_cast<std::uintptr_t>(p)));
}

/// Device memory that grows: operands and results in another type than they are stored in.
class Converted {
 public:
  explicit Converted(Device device) : device_(device) {}
  Tensor take(DType dtype, const Shape& shape) {
    reserve(static_cast<std::size_t>(shape.numel()) * size_of(dtype));
    return {memory_.data(), dtype, shape, device_};
  }
  void reserve(std::size_t bytes) {
    if (memory_.bytes() >= bytes) return;
    DeviceMemory larger(device_, bytes, "operands of another type");
    outgrown_.push_back(std::exchange(memory_, std::move(larger)));
  }
  const DeviceMemory& memory() const { return memory_; }

 private:
  Device device_;
  DeviceMemory memory_;
  std::vector<DeviceMemory> outgrown_;  ///< recorded products may read it
};

/// A product whose result nobody needs, and the memory that the library may use for it.
struct Trial {
  Gemm g;
  Workspace workspace;
};

/// What products need from one to the next.
class Products {
 public:
  explicit Products(Device device)
      : info_(cuda_info(device.index)),
        workspace_(device, gemm_workspace(info_.major), "workspace of matrix products"),
        choices_(info_.name, library_.version()),
        a_(device),
        b_(device),
        bias_(device),
        c_(device) {}

  void run(Ctx& ctx, const Gemm& g);
  void reserve(const GemmMemory& memory) {
    a_.reserve(memory.converted_a);
    b_.reserve(memory.converted_b);
    bias_.reserve(memory.converted_bias);
  }

 private:
  Gemm with_converted_operands(Ctx& ctx, const Gemm& g);
  void convert(Ctx& ctx, ConstTensor& operand, Tensor to);
  void compute(Ctx& ctx, const Gemm& g);
  ProductPlan& plan_for(Ctx& ctx, const ProductKey& key, const Gemm& g);
  cublasLtMatmulAlgo_t fastest(Ctx& ctx, ProductPlan& plan, const Gemm& g);
  std::optional<Trial> trial_of(const Gemm& g) const;
  double milliseconds(Ctx& ctx, ProductPlan& plan, const cublasLtMatmulAlgo_t& algorithm, const Trial& trial);
  Workspace workspace() const { return {workspace_.data(), workspace_.bytes()}; }

  DeviceInfo info_;
  Blaslt library_;
  DeviceMemory workspace_;
  cuda::ProductChoices choices_;
  Converted a_, b_, bias_, c_;
  std::map<ProductKey, std::unique_ptr<ProductPlan>> plans_;
};

Gemm Products::with_converted_operands(Ctx& ctx, const Gemm& g) {
  const DType type = gemm_operand_type(ctx.matmul(), g.a.dtype, g.b.dtype);
  Gemm h = g;
  const auto flat = [](ConstTensor t, std::int64_t stride) { return Shape(stretch(t, stride)); };
  if (g.a.dtype != type) convert(ctx, h.a, a_.take(type, flat(g.a, g.a_stride)));
  if (g.b.dtype != type) convert(ctx, h.b, b_.take(type, flat(g.b, g.b_stride)));
  return h;
}

/// `to` has no shape but a length: all from the first element of the operand to its last.
void Products::convert(Ctx& ctx, ConstTensor& operand, Tensor to) {
  ConstTensor from = operand;
  from.shape = to.shape;
  copy(ctx, {.y = store(to), .x = from});
  to.shape = operand.shape;
  operand = to;
}

void Products::run(Ctx& ctx, const Gemm& g) {
  Gemm h = with_converted_operands(ctx, g);
  // The library writes products of f32 in f32 only, and those of 16 bits in the same type or f32.
  const bool written = h.c.t.dtype == DType::f32 || h.c.t.dtype == h.a.dtype;
  check(written || g.c_stride == 0, "gemm: columns of a wider result have the type of the operands or f32");
  if (!written) h.c = store(c_.take(DType::f32, g.c.t.shape));
  const DType result = h.c.t.dtype;
  if (h.bias && h.bias.dtype != result) convert(ctx, h.bias, bias_.take(result, h.bias.shape));
  compute(ctx, h);
  if (written) return;
  copy(ctx, {.y = g.c, .x = h.c.t});
}

void Products::compute(Ctx& ctx, const Gemm& g) {
  const ProductKey key{.m = g.c.t.shape[0],
                       .n = g.c.t.shape[1],
                       .k = g.first().depth(),
                       .stride_a = row_step(g.a, g.a_stride),
                       .stride_b = row_step(g.b, g.b_stride),
                       .stride_c = row_step(g.c.t, g.c_stride),
                       .operands = g.a.dtype,
                       .result = g.c.t.dtype,
                       .transpose_a = g.transpose_a == Transpose::yes,
                       .transpose_b = g.transpose_b == Transpose::yes,
                       .bias = static_cast<bool>(g.bias),
                       .adds = g.c.adds(),
                       .tf32 = ctx.matmul() == MatmulPrecision::tf32,
                       .align_a = alignment_of(g.a.data),
                       .align_b = alignment_of(g.b.data),
                       .align_c = alignment_of(g.c.t.data),
                       .align_bias = alignment_of(g.bias.data)};
  ProductPlan& plan = plan_for(ctx, key, g);
  ctx.stream().launched("gemm");
  Blaslt::verify(plan.run(*plan.algorithm, g, workspace(), static_cast<cudaStream_t>(ctx.stream().handle())),
                 "cublasLtMatmul");
}

ProductPlan& Products::plan_for(Ctx& ctx, const ProductKey& key, const Gemm& g) {
  std::unique_ptr<ProductPlan>& plan = plans_[key];
  if (plan) return *plan;
  auto made = std::make_unique<ProductPlan>(library_, key);
  made->add_bias(g.bias);  // whose alignment counts in the choice
  made->algorithm = choices_.find(key);
  if (!made->algorithm || !made->usable(*made->algorithm, workspace_.bytes())) {
    made->algorithm = fastest(ctx, *made, g);
    choices_.remember(key, *made->algorithm);
  }
  plan = std::move(made);
  return *plan;
}

/// A product that adds cannot be repeated on its own result: it is tried on memory that nothing needs now, that of
/// converted operands, which is planned for the largest weight, or for a small one on the end of the workspace.
std::optional<Trial> Products::trial_of(const Gemm& g) const {
  Trial trial{g, workspace()};
  if (!g.c.adds()) return trial;
  Tensor& result = trial.g.c.t;
  const std::size_t needed = static_cast<std::size_t>(stretch(result, g.c_stride)) * size_of(result.dtype);
  for (const Converted* converted : {&a_, &b_, &c_}) {
    const DeviceMemory& memory = converted->memory();
    result.data = memory.data();
    if (result.data != g.a.data && result.data != g.b.data && memory.bytes() >= needed) return trial;
  }
  constexpr std::size_t kAlign = 256;
  const std::size_t taken = (needed + kAlign - 1) / kAlign * kAlign;
  if (taken > workspace_.bytes() / 4) return {};
  trial.workspace.bytes -= taken;
  result.data = trial.workspace.data + trial.workspace.bytes;
  return trial;
}

/// The library's favourite, unless another is faster.
cublasLtMatmulAlgo_t Products::fastest(Ctx& ctx, ProductPlan& plan, const Gemm& g) {
  constexpr double kWorthIt = 0.97;  // of the favourite's time: below that it is no noise
  const std::vector<cublasLtMatmulAlgo_t> candidates = plan.candidates(workspace_.bytes());
  const std::optional<Trial> trial = trial_of(g);
  if (!trial || candidates.size() == 1) return candidates.front();
  const cublasLtMatmulAlgo_t* best = &candidates.front();
  double least = kWorthIt * milliseconds(ctx, plan, *best, *trial);
  for (std::size_t i = 1; i < candidates.size(); ++i)
    if (const double time = milliseconds(ctx, plan, candidates[i], *trial); time < least) {
      best = &candidates[i];
      least = time;
    }
  return *best;
}

/// The least of three runs of two products each, after one product.
double Products::milliseconds(Ctx& ctx, ProductPlan& plan, const cublasLtMatmulAlgo_t& algorithm, const Trial& trial) {
  constexpr int kRuns = 3, kProducts = 2;
  const auto stream = static_cast<cudaStream_t>(ctx.stream().handle());
  Event begin(ctx.device()), end(ctx.device());
  double least = 1e30;
  for (int run = 0; run <= kRuns; ++run) {  // the first warms up
    ctx.stream().record(begin);
    for (int i = 0; i < (run == 0 ? 1 : kProducts); ++i)
      if (plan.run(algorithm, trial.g, trial.workspace, stream) != CUBLAS_STATUS_SUCCESS) return 1e30;
    ctx.stream().record(end);
    end.synchronize();
    if (run > 0) least = std::min(least, end.milliseconds_since(begin));
  }
  return least;
}

/// Without an inner dimension the product is zero.
void only_bias(Ctx& ctx, const Gemm& g) {
  Tensor row = g.c.t;
  row.shape = {1, g.c.t.shape[1]};
  const std::size_t step = static_cast<std::size_t>(row_step(g.c.t, g.c_stride)) * size_of(row.dtype);
  for (std::int64_t i = 0; i < g.c.t.shape[0]; ++i, row.data += step) {
    if (!g.c.adds()) fill(ctx, {.y = row, .value = 0});
    if (g.bias) copy(ctx, {.y = accumulate(row), .x = g.bias.reshaped(row.shape)});
  }
}

}  // namespace

void run_cuda(Ctx& ctx, const Gemm& g) {
  if (g.a.numel() == 0) return only_bias(ctx, g);
  ctx.kept<Products>().run(ctx, g);
}

void run_cuda(Ctx& ctx, const GemmMemory& memory) {
  ctx.kept<Products>().reserve(memory);
}

}  // namespace qtrain::ops
