#pragma once
#include <string>
#include <string_view>

#include "config/config.h"
#include "core/context.h"
#include "core/log.h"
#include "dist/rank_place.h"
#include "optim/table.h"

namespace qtrain {

/// Device and precision of a run. make_context logs what was chosen and why.
struct ComputeChoice {
  std::string device = "auto";   ///< auto, cpu, cuda
  std::string compute = "auto";  ///< auto, float32, bfloat16
  bool bf16 = true;              ///< preference for auto: bfloat16 where it is faster
  bool fp16 = false;             ///< preference for auto: float16, on GPUs
  bool tf32 = false;             ///< let GPUs multiply float32 in TF32
  int threads = 0;
  int gpu = 0;  ///< index among the GPUs of this machine
};
Ctx make_context(const ComputeChoice& choice, Log& log);
/// Adds remarks on GPU-only keys if a run with this config would run on the CPU.
void remark_on_device(ResolvedConfig& config);
/// Sets nproc, unless it was given, to the number of GPUs of this machine if the run uses GPUs.
void settle_ranks(ResolvedConfig& config);
/// Throws ErrorKind::usage if this machine has fewer GPUs than ranks, or has no NCCL for several ranks.
void require_gpus(const Config& config);
/// The device of a rank. Throws ErrorKind::usage if there are GPUs but none for this rank.
Device device_of_rank(const RankPlace& place, const ComputeChoice& choice);

/// Device and precision of GEMMs, known without opening the device.
struct ComputePlan {
  Device device;
  MatmulPrecision matmul = MatmulPrecision::storage;
  int major = 0;  ///< compute capability of a GPU, if it is known

  /// Whether its GEMMs in FP8 can have scales for blocks.
  bool has_fp8_blocks() const { return major == 9; }
};
/// The plan of an open device.
ComputePlan compute_plan(const Ctx& ctx);
/// What make_context would choose.
ComputePlan plan_compute(const ComputeChoice& choice);
/// Throws ErrorKind::usage if a GPU of this compute capability does not support the precision.
void require_precision(MatmulPrecision precision, std::string_view gpu, int major);
/// A GPU's name and compute capability.
struct GpuFeatures {
  std::string_view name;
  int major = 0, minor = 0;
};
/// Likewise for the GEMMs of the optimizer and for those in FP8, if the config has any.
void require_features(const Config& config, const GpuFeatures& gpu);
void require_features(const Config& config, Device device);
/// What make_context would choose if this machine had a GPU.
ComputePlan plan_compute_on_gpu(const ComputeChoice& choice);
ComputeChoice compute_choice(const Config& config);

}  // namespace qtrain
