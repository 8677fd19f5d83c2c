// gemm() over cuBLASLt.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "kernels/cuda/native/gemm_plan.h"
#include "kernels/elementwise.h"

namespace qtrain::ops {
namespace {

using cuda::Blaslt;
using cuda::ProductPlan;
using cuda::Workspace;

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

 private:
  Device device_;
  DeviceMemory memory_;
  std::vector<DeviceMemory> outgrown_;  ///< recorded products may read it
};

/// A product whose result nobody needs, and the memory that the library may use for it.
struct Trial {
  Gemm g;
  Workspace workspace;
  DeviceMemory sums = {};  ///< where it is not a part of the workspace
};

/// What products need from one to the next.
class Products {
 public:
  explicit Products(Device device)
      : info_(cuda_info(device.index)),
        workspace_(device, gemm_workspace(info_.major), "workspace of matrix products"),
        choices_(info_.name + ", cuBLASLt " + std::to_string(library_.version()), user_cache_folder()),
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
  ProductChoices& choices() { return choices_; }

 private:
  Gemm with_converted_operands(Ctx& ctx, const Gemm& g);
  void convert(Ctx& ctx, ConstTensor& operand, Tensor to);
  void compute(Ctx& ctx, const Gemm& g);
  ProductPlan& plan_for(Ctx& ctx, const ProductKey& key, const Gemm& g);
  cublasLtMatmulAlgo_t chosen(Ctx& ctx, const ProductPlan& plan, const Gemm& g);
  cublasLtMatmulAlgo_t fastest(Ctx& ctx, const std::vector<cublasLtMatmulAlgo_t>& candidates, const Trial& trial);
  std::optional<Trial> trial_of(const Gemm& g) const;
  double milliseconds(Ctx& ctx, ProductPlan& plan, const cublasLtMatmulAlgo_t& algorithm, const Trial& trial);
  Workspace workspace() const { return {workspace_.data(), workspace_.bytes()}; }

  DeviceInfo info_;
  Blaslt library_;
  DeviceMemory workspace_;
  ProductChoices choices_;
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
  ProductPlan& plan = plan_for(ctx, key_of(g, ctx.matmul()), g);
  ctx.stream().launched("gemm");
  Blaslt::verify(plan.run(*plan.algorithm, g, workspace(), static_cast<cudaStream_t>(ctx.stream().handle())),
                 "cublasLtMatmul");
}

ProductPlan& Products::plan_for(Ctx& ctx, const ProductKey& key, const Gemm& g) {
  std::unique_ptr<ProductPlan>& plan = plans_[key];
  if (plan) return *plan;
  auto made = std::make_unique<ProductPlan>(library_, key);
  made->add_bias(g.bias);  // whose alignment counts in the choice
  made->algorithm = chosen(ctx, *made, g);
  plan = std::move(made);
  return *plan;
}

/// What was chosen for the class. Where this one of its sizes cannot be computed so, and where nothing is tried, the
/// library's favorite: a choice that hangs on nothing else.
cublasLtMatmulAlgo_t Products::chosen(Ctx& ctx, const ProductPlan& plan, const Gemm& g) {
  const auto favorite = [&] { return plan.candidates(workspace_.bytes()).front(); };
  const ProductKey key = key_of(g, ctx.matmul());
  if (!is_tried(key)) return favorite();
  const std::string product = to_string(class_of(key));
  if (const auto known = choices_.find(product)) {
    const cublasLtMatmulAlgo_t algorithm = cuda::algorithm_of(*known);
    return plan.usable(algorithm, workspace_.bytes()) ? algorithm : favorite();
  }
  const std::vector<cublasLtMatmulAlgo_t> candidates = plan.candidates(workspace_.bytes());
  const std::optional<Trial> trial = trial_of(g);
  const cublasLtMatmulAlgo_t algorithm = trial ? fastest(ctx, candidates, *trial) : candidates.front();
  using Found = ProductChoices::Found;
  choices_.remember(product, cuda::words_of(algorithm), trial ? Found::by_trial : Found::without_trial);
  return algorithm;
}

/// A product that adds is tried on memory that nothing needs: the end of the workspace, or some of its own.
std::optional<Trial> Products::trial_of(const Gemm& g) const {
  Trial trial{g, workspace()};
  if (!g.c.adds()) return trial;
  constexpr std::size_t kAlign = 256;
  Tensor result = g.c.t;
  const std::size_t needed = static_cast<std::size_t>(stretch(result, g.c_stride)) * size_of(result.dtype);
  std::size_t bytes = std::min((needed + kAlign - 1) / kAlign * kAlign, kGemmTrialBytes);
  if (bytes <= workspace_.bytes() / 4) {
    trial.workspace.bytes -= bytes;
    result.data = trial.workspace.data + trial.workspace.bytes;
  } else {
    try {
      trial.sums = DeviceMemory(workspace_.device(), bytes, "trials of products");
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::memory) throw;
      return {};
    }
    result.data = trial.sums.data();
  }
  result.shape = {static_cast<std::int64_t>(bytes / size_of(result.dtype))};
  const auto part = repeatable(g, result);
  if (!part) return {};
  trial.g = *part;
  return trial;
}

/// The library's favorite, unless another is faster.
cublasLtMatmulAlgo_t Products::fastest(Ctx& ctx, const std::vector<cublasLtMatmulAlgo_t>& candidates,
                                       const Trial& trial) {
  constexpr double kWorthIt = 0.97;  // of the favorite's time: below that it is no noise
  ProductPlan plan(library_, key_of(trial.g, ctx.matmul()));
  const cublasLtMatmulAlgo_t* best = &candidates.front();
  double least = kWorthIt * milliseconds(ctx, plan, *best, trial);
  for (std::size_t i = 1; i < candidates.size(); ++i)
    if (const double time = milliseconds(ctx, plan, candidates[i], trial); time < least) {
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

namespace qtrain::cuda {

ProductChoices& product_choices(Ctx& ctx) {
  return ctx.kept<ops::Products>().choices();
}

}  // namespace qtrain::cuda
