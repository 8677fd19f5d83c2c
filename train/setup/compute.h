#pragma once
#include <string>
#include <string_view>

#include "config/config.h"
#include "core/context.h"
#include "core/log.h"
#include "dist/rank_place.h"
#include "optim/table.h"

namespace qtrain {

/// Where and how precisely to compute. Says what was chosen and why.
struct ComputeChoice {
  std::string device = "auto";   ///< auto, cpu, cuda
  std::string compute = "auto";  ///< auto, float32, bfloat16
  bool bf16 = true;              ///< what auto is: bfloat16 where it pays
  bool fp16 = false;             ///< or float16, on a GPU
  bool tf32 = false;             ///< whether a GPU may multiply float32 in TF32
  int threads = 0;
  int gpu = 0;  ///< which of those of this machine
};
Ctx make_context(const ComputeChoice& choice, Log& log);
/// Notes on keys about GPUs, where a run with this config would be on a processor.
void remark_on_device(ResolvedConfig& config);
/// Where nproc is not given, it becomes the number of GPUs of this machine, for a run that uses them.
void settle_ranks(ResolvedConfig& config);
/// A usage error where this machine has fewer GPUs than it is to have ranks, or no NCCL for several.
void require_gpus(const Config& config);
/// Where a rank computes. A usage error where there are GPUs, and none for this rank.
Device device_of_rank(const RankPlace& place, const ComputeChoice& choice);

/// Where and how GEMMs are computed, known without a device.
struct ComputePlan {
  Device device;
  MatmulPrecision matmul = MatmulPrecision::storage;
};
/// What make_context would choose.
ComputePlan plan_compute(const ComputeChoice& choice);
/// A usage error where a GPU of this compute capability does not multiply in that way.
void require_precision(MatmulPrecision precision, std::string_view gpu, int major);
/// The same for the GEMMs of an optimizer.
void require_optimizer(const OptimizerOptions& optimizer, std::string_view gpu, int major);
void require_optimizer(const Config& config, Device device);
/// What it would choose if a GPU were here.
ComputePlan plan_compute_on_gpu(const ComputeChoice& choice);
ComputeChoice compute_choice(const Config& config);

}  // namespace qtrain
