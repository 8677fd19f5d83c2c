#include "train/setup/compute.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/remarks.h"
#include "core/plural.h"
#include "dist/nccl_library.h"
#include "kernels/processor.h"

namespace qtrain {
namespace {

bool wants_cuda(const ComputeChoice& choice) {
  if (choice.device == "cpu") return false;
  const std::string problem = cuda_problem();
  if (choice.device == "cuda" && !problem.empty())
    fail(ErrorKind::usage, {.cause = "device cuda: " + problem, .remedy = "use device=cpu"});
  return problem.empty() && (choice.device == "cuda" || !cuda_is_emulated());
}

MatmulPrecision cpu_precision(const ComputeChoice& choice) {
  const bool wanted = choice.compute == "bfloat16" || (choice.compute == "auto" && choice.bf16);
  return wanted && has_bf16_matmul() ? MatmulPrecision::bf16 : MatmulPrecision::storage;
}

Ctx cpu_context(const ComputeChoice& choice, Log& log) {
  const MatmulPrecision precision = cpu_precision(choice);
  const bool bf16 = precision == MatmulPrecision::bf16;
  if (choice.compute == "bfloat16" && !bf16)
    log.warn("compute_dtype bfloat16: this CPU multiplies bfloat16 no faster than float32; using float32");
  Ctx ctx({}, precision, choice.threads);
  log.info("device: {}, {}, GEMMs in {}", describe_cpu(), counted(ctx.pool().size(), "thread"),
           bf16 ? "bfloat16 with float32 accumulation" : "float32");
  return ctx;
}

MatmulPrecision cuda_precision(const ComputeChoice& choice) {
  const bool automatic = choice.compute == "auto";
  if (choice.compute == "bfloat16" || (automatic && choice.bf16)) return MatmulPrecision::bf16;
  if (automatic && choice.fp16) return MatmulPrecision::f16;
  return choice.tf32 ? MatmulPrecision::tf32 : MatmulPrecision::storage;
}

const char* describe_on_cuda(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::bf16: return "activations in bfloat16, GEMMs in bfloat16 with float32 accumulation";
    case MatmulPrecision::f16: return "activations in float16, GEMMs in float16 with float32 accumulation";
    case MatmulPrecision::tf32: return "activations in float32, GEMMs in TF32";
    default: return "activations and GEMMs in float32";
  }
}

Ctx cuda_context(const ComputeChoice& choice, Log& log) {
  const DeviceInfo gpu = cuda_info(choice.gpu);
  const MatmulPrecision precision = plan_compute(choice).matmul;
  log.info("device: {}, {:.1f} of {:.1f} GB free, compute capability {}.{}, {}", gpu.name,
           static_cast<double>(gpu.free_bytes) / 1e9, static_cast<double>(gpu.total_bytes) / 1e9, gpu.major, gpu.minor,
           describe_on_cuda(precision));
  return Ctx({DeviceKind::cuda, choice.gpu}, precision, choice.threads);
}

// Number of GPUs that a run with this config can use; 0 if it runs on the CPU.
int gpus_of(const Config& config) {
  return cuda_problem().empty() && wants_cuda(compute_choice(config)) ? cuda_device_count() : 0;
}

}  // namespace

Ctx make_context(const ComputeChoice& choice, Log& log) {
  return wants_cuda(choice) ? cuda_context(choice, log) : cpu_context(choice, log);
}

void remark_on_device(ResolvedConfig& config) {
  const TrainingSection& t = config.value.training;
  if (config.value.run.device == DeviceChoice::cuda || wants_cuda(compute_choice(config.value))) return;
  if (t.fp16) no_effect(config, "fp16", "it applies only to GPUs; CPUs compute in float32");
  if (t.tf32.value_or(false) && !config.diagnostics.ignores("tf32"))
    no_effect(config, "tf32", "it applies only to GEMMs on a GPU");
  if (t.fp8 && !config.diagnostics.ignores("fp8")) no_effect(config, "fp8", "it applies only to GEMMs on a GPU");
  if (t.activation_offloading) no_effect(config, "activation_offloading", "it applies only to GPU memory");
  if (t.optimizer_offload) no_effect(config, "optimizer_offload", "it applies only to GPU memory");
  if (t.weight_offload) no_effect(config, "weight_offload", "it applies only to GPU memory");
}

void require_precision(MatmulPrecision precision, std::string_view gpu, int major) {
  if (precision == MatmulPrecision::bf16 && major < 8)
    fail(ErrorKind::usage,
         {.cause = fmt::format("bfloat16 needs a GPU of compute capability 8.0 or higher; {} is older", gpu),
          .remedy = "compute in float16 (fp16=true), or in float32 (bf16=false; --dtype float32)"});
}

void require_features(const Config& config, const GpuFeatures& gpu) {
  const OptimizerOptions optimizer = optimizer_options(config.training);
  const MatmulPrecision precision = cuda_precision(compute_choice(config));
  const bool in_16_bits = precision == MatmulPrecision::bf16 || precision == MatmulPrecision::f16;
  if (multiplies_bf16(optimizer) && gpu.major < 8)
    fail(ErrorKind::usage,
         {.cause = fmt::format(
              "optim {} multiplies in bfloat16, which needs a GPU of compute capability 8.0 or higher; {} is older",
              optimizer.name, gpu.name),
          .remedy = "use another optimizer, such as adamw_torch"});
  if (config.training.fp8 && in_16_bits && gpu.major * 10 + gpu.minor < 89)
    fail(ErrorKind::usage,
         {.cause = fmt::format("fp8 needs a GPU of compute capability 8.9 or higher; {} is older", gpu.name),
          .remedy = "set fp8=false"});
  if (config.training.fp8 && in_16_bits && config.training.fp8_recipe == Fp8RecipeChoice::blockwise && gpu.major != 9)
    fail(ErrorKind::usage,
         {.cause = fmt::format("fp8_recipe blockwise needs a GPU of compute capability 9.0; {} is another", gpu.name),
          .remedy = "set fp8_recipe=auto"});
}

void require_features(const Config& config, Device device) {
  if (device.kind == DeviceKind::cpu) return;
  const DeviceInfo gpu = cuda_info(device.index);
  require_features(config, GpuFeatures{.name = gpu.name, .major = gpu.major, .minor = gpu.minor});
}

ComputePlan compute_plan(const Ctx& ctx) {
  const bool gpu = ctx.device().kind == DeviceKind::cuda;
  return {.device = ctx.device(), .matmul = ctx.matmul(), .major = gpu ? cuda_info(ctx.device().index).major : 0};
}

ComputePlan plan_compute_on_gpu(const ComputeChoice& choice) {
  return {.device = {DeviceKind::cuda, choice.gpu}, .matmul = cuda_precision(choice)};
}

ComputePlan plan_compute(const ComputeChoice& choice) {
  if (!wants_cuda(choice)) return {.device = {}, .matmul = cpu_precision(choice)};
  const DeviceInfo gpu = cuda_info(choice.gpu);
  ComputePlan plan = plan_compute_on_gpu(choice);
  plan.major = gpu.major;
  require_precision(plan.matmul, gpu.name, gpu.major);
  return plan;
}

void settle_ranks(ResolvedConfig& config) {
  if (!config.given("nproc")) config.value.run.nproc = std::max(1, gpus_of(config.value));
}

void require_gpus(const Config& config) {
  const int gpus = gpus_of(config);
  if (gpus == 0 || config.run.ranks() == 1) return;
  if (config.run.nproc > gpus)
    fail(ErrorKind::usage,
         {.cause = fmt::format("nproc is {}, but only {} can be used here: ranks do not share GPUs", config.run.nproc,
                               counted(gpus, "GPU")),
          .remedy =
              fmt::format("set nproc to {} (CUDA_VISIBLE_DEVICES selects the visible GPUs), or device to cpu", gpus)});
  const NcclLibrary needed;
}

Device device_of_rank(const RankPlace& place, const ComputeChoice& choice) {
  if (!wants_cuda(choice)) return {};
  const int gpus = cuda_device_count();
  if (gpus == 1) return {DeviceKind::cuda, 0};  // a scheduler shows each rank only its own GPU
  if (place.local_rank < gpus) return {DeviceKind::cuda, place.local_rank};
  fail(ErrorKind::usage, {.cause = fmt::format("rank {} is number {} on this machine, which has GPUs 0 to {}",
                                               place.rank, place.local_rank, gpus - 1),
                          .remedy = "start at most one rank per GPU on each machine, or set device to cpu"});
}

ComputeChoice compute_choice(const Config& config) {
  return {.device = std::string(name_of_enum(config.run.device)),
          .compute = config.run.compute_dtype,
          .bf16 = config.training.bf16,
          .fp16 = config.training.fp16,
          .tf32 = config.training.tf32.value_or(false),
          .threads = static_cast<int>(config.run.threads)};
}

}  // namespace qtrain
