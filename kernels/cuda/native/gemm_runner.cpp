#include "kernels/gemm_library.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/os/file.h"
#include "kernels/cuda/native/gemm_plan.h"
#include "kernels/elementwise.h"
#include "kernels/fp8.h"
#include "kernels/gemm_trials.h"
#include "kernels/gemm_workspaces.h"
#include "kernels/lru_cache.h"

namespace qtrain::ops {
namespace {

using cuda::Blaslt;
using cuda::GemmPlan;
using cuda::Workspace;

/// Growing device memory for operands and results that are converted to another type.
class Converted {
 public:
  explicit Converted(Device device) : device_(device) {}
  Tensor take(DType dtype, const Shape& shape) {
    return {take(static_cast<std::size_t>(shape.numel()) * size_of(dtype)), dtype, shape, device_};
  }
  std::byte* take(std::size_t bytes) {
    reserve(bytes);
    return memory_.data();
  }
  void reserve(std::size_t bytes) {
    if (memory_.bytes() >= bytes) return;
    DeviceMemory larger(device_, bytes, "converted GEMM operands");
    outgrown_.push_back(std::exchange(memory_, std::move(larger)));
  }

 private:
  Device device_;
  DeviceMemory memory_;
  std::vector<DeviceMemory> outgrown_;  ///< kept, since captured GEMMs may read it
};

/// State that GEMMs of a context share.
class GemmRunner {
 public:
  explicit GemmRunner(Device device)
      : info_(cuda_info(device.index)),
        memory_(device),
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
  GemmChoices& choices() { return choices_; }

 private:
  void run_in_fp8(Ctx& ctx, const Gemm& g);
  void run_in_blocks(Ctx& ctx, const Gemm& g);
  void run_last_rows(Ctx& ctx, const Gemm& g);
  Gemm with_converted_operands(Ctx& ctx, const Gemm& g);
  void convert(Ctx& ctx, ConstTensor& operand, Tensor to);
  void compute(Ctx& ctx, const Gemm& g);
  void compute_apart(Ctx& ctx, const Gemm& g);
  std::unique_ptr<GemmPlan> make_plan(const GemmKey& key, const Gemm& g);
  GemmPlan& plan_for(Ctx& ctx, const GemmKey& key, const Gemm& g);
  std::optional<cublasLtMatmulAlgo_t> chosen(Ctx& ctx, const GemmPlan& plan, const Gemm& g);
  cublasLtMatmulAlgo_t fastest(Ctx& ctx, const std::vector<cublasLtMatmulAlgo_t>& candidates, const Gemm& trial);
  std::optional<Gemm> trial_of(const Gemm& g) const;
  double milliseconds(Ctx& ctx, GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm, const Gemm& trial);
  Workspace workspace() const { return {memory_.workspace.data(), memory_.workspace.bytes()}; }

  /// Several times the number in a step; evaluation alone needs thousands of sizes. A captured GEMM does not need its
  /// plan any more.
  static constexpr std::size_t kMaxPlans = 4096;

  DeviceInfo info_;
  Blaslt library_;
  GemmWorkspaces memory_;
  GemmChoices choices_;
  Converted a_, b_, bias_, c_;
  Fp8Factors encoded_;  ///< operands of the GEMM that is being queued, if it is in FP8
  LruCache<GemmKey, std::unique_ptr<GemmPlan>> plans_{kMaxPlans};
};

Gemm GemmRunner::with_converted_operands(Ctx& ctx, const Gemm& g) {
  const DType type = gemm_operand_type(ctx.matmul(), g.a.dtype, g.b.dtype);
  Gemm h = g;
  const auto flat = [](ConstTensor t, std::int64_t stride) { return Shape(stretch(t, stride)); };
  if (g.a.dtype != type) convert(ctx, h.a, a_.take(type, flat(g.a, g.a_stride)));
  if (g.b.dtype != type) convert(ctx, h.b, b_.take(type, flat(g.b, g.b_stride)));
  return h;
}

/// `to` has a length but no shape: it covers the operand from its first to its last element.
void GemmRunner::convert(Ctx& ctx, ConstTensor& operand, Tensor to) {
  ConstTensor from = operand;
  from.shape = to.shape;
  copy(ctx, {.y = store(to), .x = from});
  to.shape = operand.shape;
  operand = to;
}

/// Rows [first, first + count) of a GEMM's result, and of A, which is not transposed.
Gemm rows_of(const Gemm& g, std::int64_t first, std::int64_t count) {
  const auto part = [&](auto matrix, std::int64_t stride) {
    matrix.data += static_cast<std::size_t>(first * row_step(matrix, stride)) * size_of(matrix.dtype);
    matrix.shape.dims[0] = count;
    return matrix;
  };
  Gemm some = g;
  some.a = part(g.a, g.a_stride);
  some.c.t = part(g.c.t, g.c_stride);
  if (g.residual) some.residual = part(g.residual, 0);
  return some;
}

/// The GEMM of codes for one that is in FP8.
Gemm of_codes(const Gemm& g, const Fp8Factors& f) {
  return {.c = g.c,
          .a = f.a.codes,
          .b = f.b_codes,
          .transpose_b = Transpose::yes,
          .alpha = g.alpha,
          .c_stride = g.c_stride,
          .residual = g.residual,
          .fp8 = g.fp8};
}

/// Each GEMM encodes its operands again, which takes little time compared with a GEMM over many tokens, except those
/// that are stored in FP8.
void GemmRunner::run_in_fp8(Ctx& ctx, const Gemm& g) {
  const std::int64_t depth = g.first().depth();
  std::byte* b = is_fp8(g.b.dtype) ? nullptr : b_.take(fp8_bytes(g.fp8->b_block, g.first().columns(), depth));
  const Shape sizes{g.first().rows(), g.first().columns(), depth};
  encoded_ = fp8_factors(g, a_.take(fp8_bytes_of_a(g.fp8->a_block, sizes)), b);
  if (encoded_.b.x) to_fp8(ctx, encoded_.b);
  if (g.fp8->a_block != Fp8Block::matrix) return run_in_blocks(ctx, g);
  to_fp8(ctx, encoded_.a);
  compute(ctx, of_codes(g, encoded_));
}

/// The library wants a multiple of four rows, so the last ones are a GEMM of their own.
void GemmRunner::run_in_blocks(Ctx& ctx, const Gemm& g) {
  constexpr std::size_t kNeeded = 120900;
  if (library_.version() < kNeeded)
    fail(ErrorKind::usage, {.cause = "cuBLASLt " + std::to_string(library_.version()) + " has no block scales for FP8",
                            .remedy = "install CUDA 12.9 or later, or set fp8_recipe to tensorwise"});
  const std::int64_t rows = g.first().rows(), last = rows % kFp8Rows;
  if (last == 0) {
    to_fp8(ctx, encoded_.a);
    return compute(ctx, of_codes(g, encoded_));
  }
  const Fp8Factors all = encoded_;
  const auto part = [&](std::int64_t first, std::int64_t count) {
    const Gemm some = rows_of(g, first, count);
    encoded_.a = fp8_factors(some, all.a.codes.data, all.b.codes.data).a;
    return some;
  };
  if (rows > last) {
    const Gemm first = part(0, rows - last);
    to_fp8(ctx, encoded_.a);
    compute(ctx, of_codes(first, encoded_));
  }
  run_last_rows(ctx, part(rows - last, last));
}

/// Up to three rows: computed with rows of zeros in separate memory, and then copied or added.
void GemmRunner::run_last_rows(Ctx& ctx, const Gemm& g) {
  const std::int64_t columns = g.c.t.shape[1];
  ToFp8& a = encoded_.a;
  a.codes.shape = {kFp8Rows, a.codes.shape[1]};
  a.scale = {a.codes.data + a.codes.bytes(), DType::f32, fp8_scales(a.block, kFp8Rows, a.codes.shape[1]),
             a.codes.device};
  const std::size_t codes = fp8_bytes(a.block, kFp8Rows, a.codes.shape[1]);
  to_fp8(ctx, a);
  Gemm whole = of_codes(g, encoded_);
  whole.residual = {};
  whole.c_stride = 0;
  whole.c = store(Tensor{a.codes.data + codes, DType::f32, {kFp8Rows, columns}, g.c.t.device});
  compute(ctx, whole);
  for (std::int64_t i = 0; i < g.c.t.shape[0]; ++i) {
    const Gemm row = rows_of(g, i, 1);
    Sink to = row.c;
    to.t.shape = {1, columns};
    if (g.residual) copy(ctx, {.y = to, .x = row.residual});
    if (g.residual) to = accumulate(to.t);
    copy(ctx, {.y = to, .x = whole.c.t.slice(i, 1)});
  }
}

void GemmRunner::run(Ctx& ctx, const Gemm& g) {
  if (multiplies_in_fp8(g)) return run_in_fp8(ctx, g);
  Gemm h = with_converted_operands(ctx, g);
  // The library writes the result of f32 GEMMs only in f32, and of 16-bit GEMMs in the same type or f32.
  const bool written = h.c.t.dtype == DType::f32 || h.c.t.dtype == h.a.dtype;
  check(written || (g.c_stride == 0 && !g.residual),
        "gemm: columns of a wider result and sums with a residual have the type of the operands or f32");
  if (!written) h.c = store(c_.take(DType::f32, g.c.t.shape));
  const DType result = h.c.t.dtype;
  if (h.bias && h.bias.dtype != result) convert(ctx, h.bias, bias_.take(result, h.bias.shape));
  compute(ctx, h);
  if (written) return;
  copy(ctx, {.y = g.c, .x = h.c.t});
}

/// Adds the bias row by row.
void add_bias(Ctx& ctx, const Gemm& g) {
  Tensor row = g.c.t;
  row.shape = {1, g.c.t.shape[1]};
  const std::size_t step = static_cast<std::size_t>(row_step(g.c.t, g.c_stride)) * size_of(row.dtype);
  for (std::int64_t i = 0; i < g.c.t.shape[0]; ++i, row.data += step)
    copy(ctx, {.y = accumulate(row), .x = g.bias.reshaped(row.shape)});
}

void GemmRunner::compute(Ctx& ctx, const Gemm& g) {
  GemmPlan& plan = plan_for(ctx, key_of(g, ctx.matmul()), g);
  if (!plan.algorithm) return compute_apart(ctx, g);
  if (is_fp8(g.a.dtype)) plan.set_scales(encoded_.a.scale, encoded_.b_scale);
  const Stream::Launch launch(ctx.stream(), "gemm", [&] { return sizes_of(key_of(g, ctx.matmul())); });
  Blaslt::verify(plan.run(*plan.algorithm, g, workspace(), static_cast<cudaStream_t>(ctx.stream().handle())),
                 "cublasLtMatmul");
}

/// For a result or a bias with unusual alignment: the library has GEMMs for those, but perhaps none that also adds a
/// bias.
void GemmRunner::compute_apart(Ctx& ctx, const Gemm& g) {
  if (!g.bias)
    fail(ErrorKind::usage,
         {.cause = "cuBLASLt has no algorithm on this GPU for the GEMM " + to_string(key_of(g, ctx.matmul())),
          .remedy = "train in another type (bf16, fp16 or float32), or with --device cpu"});
  Gemm gemm = g;
  gemm.bias = {};
  compute(ctx, gemm);
  add_bias(ctx, g);
}

/// Makes a plan with all that affects the choice of an algorithm, including the alignment of the bias and the scales.
std::unique_ptr<GemmPlan> GemmRunner::make_plan(const GemmKey& key, const Gemm& g) {
  auto plan = std::make_unique<GemmPlan>(library_, key);
  plan->add_bias(g.bias);
  if (is_fp8(key.operands)) plan->set_scales(encoded_.a.scale, encoded_.b_scale);
  return plan;
}

GemmPlan& GemmRunner::plan_for(Ctx& ctx, const GemmKey& key, const Gemm& g) {
  if (std::unique_ptr<GemmPlan>* plan = plans_.find(key)) return **plan;
  auto made = make_plan(key, g);
  made->algorithm = chosen(ctx, *made, g);
  return *plans_.add(key, std::move(made));
}

/// The algorithm chosen for the GEMM's size class. If it does not support this size, or the GEMM is not autotuned, the
/// library's first suggestion, which depends on nothing else. Nothing if there is no algorithm.
std::optional<cublasLtMatmulAlgo_t> GemmRunner::chosen(Ctx& ctx, const GemmPlan& plan, const Gemm& g) {
  const GemmKey key = key_of(g, ctx.matmul());
  const std::string gemm = to_string(class_of(key));
  const bool tried = is_tried(key);
  const auto known = tried ? choices_.find(gemm) : std::nullopt;
  if (known && plan.usable(cuda::algorithm_of(*known), workspace().bytes)) return cuda::algorithm_of(*known);
  const std::vector<cublasLtMatmulAlgo_t> candidates = plan.candidates(workspace().bytes);
  if (candidates.empty()) return {};
  if (known || !tried) return candidates.front();
  const std::optional<Gemm> trial = candidates.size() > 1 ? trial_of(g) : std::nullopt;
  const cublasLtMatmulAlgo_t algorithm = trial ? fastest(ctx, candidates, *trial) : candidates.front();
  choices_.remember(gemm, cuda::words_of(algorithm));
  return algorithm;
}

/// The GEMM itself, or one that accumulates into scratch memory; none if not even one tile of it fits there.
std::optional<Gemm> GemmRunner::trial_of(const Gemm& g) const {
  if (!g.c.adds()) return g;
  Tensor sums = g.c.t;
  sums.data = memory_.trials.data();
  sums.shape = {static_cast<std::int64_t>(memory_.trials.bytes() / size_of(sums.dtype))};
  return repeatable(g, sums);
}

cublasLtMatmulAlgo_t GemmRunner::fastest(Ctx& ctx, const std::vector<cublasLtMatmulAlgo_t>& candidates,
                                         const Gemm& trial) {
  const std::unique_ptr<GemmPlan> plan = make_plan(key_of(trial, ctx.matmul()), trial);
  return candidates[fastest_candidate(candidates.size(),
                                      [&](std::size_t i) { return milliseconds(ctx, *plan, candidates[i], trial); })];
}

/// The time of one GEMM that reads its operands from memory. In a step, too, other work has replaced them in the cache.
double GemmRunner::milliseconds(Ctx& ctx, GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm, const Gemm& trial) {
  Event begin(ctx.device()), end(ctx.device());
  ctx.stream().fill(memory_.trials.data(), 0, memory_.trials.bytes());
  ctx.stream().record(begin);
  const cublasStatus_t status =
      plan.run(algorithm, trial, workspace(), static_cast<cudaStream_t>(ctx.stream().handle()));
  ctx.stream().record(end);
  end.synchronize();
  return status == CUBLAS_STATUS_SUCCESS ? end.milliseconds_since(begin) : std::numeric_limits<double>::infinity();
}

/// A GEMM without inner dimension: the product is zero.
void only_bias(Ctx& ctx, const Gemm& g) {
  Tensor row = g.c.t;
  row.shape = {1, g.c.t.shape[1]};
  const std::size_t step = static_cast<std::size_t>(row_step(g.c.t, g.c_stride)) * size_of(row.dtype);
  if (g.residual) copy(ctx, {.y = g.c, .x = g.residual});
  for (std::int64_t i = 0; !g.adds() && i < g.c.t.shape[0]; ++i, row.data += step) fill(ctx, {.y = row, .value = 0});
  if (g.bias) add_bias(ctx, g);
}

}  // namespace
}  // namespace qtrain::ops

namespace qtrain::cuda {

void run_gemm(Ctx& ctx, const ops::Gemm& g) {
  if (g.a.numel() == 0) return ops::only_bias(ctx, g);
  ctx.kept<ops::GemmRunner>().run(ctx, g);
}

void reserve_gemms(Ctx& ctx, const ops::GemmMemory& memory) {
  ctx.kept<ops::GemmRunner>().reserve(memory);
}

GemmChoices& choices_of_gemms(Ctx& ctx) {
  return ctx.kept<ops::GemmRunner>().choices();
}

}  // namespace qtrain::cuda
