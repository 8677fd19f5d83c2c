#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/context.h"
#include "plan/interconnect.h"

namespace qtrain {

/// A GPU as its data sheet describes it: a row of gpus.yaml.
struct GpuModel {
  std::string name;
  double memory_gib = 0;     ///< that the driver reports, about
  double half = 0;           ///< TFLOP/s of dense GEMMs of 16-bit floats with f32 sums on tensor cores; 0: it has none
  double tf32 = 0;           ///< the same in TF32; 0: it has none
  double float32 = 0;        ///< TFLOP/s outside of tensor cores
  double bandwidth = 0;      ///< of its memory, GB/s
  int major = 0, minor = 0;  ///< compute capability
  int nvlink = 0;            ///< generation that joins all GPUs of a machine; 0: PCIe
  double peer = 0;           ///< that it sends to other GPUs of its machine at most, GB/s, while as much comes
  std::string source;

  /// Whether the program's kernels run on it: they are made for Turing and what came after it.
  bool has_kernels() const { return major * 10 + minor >= 75; }
  bool has_bf16() const { return major >= 8; }
  /// TFLOP/s of GEMMs at most.
  double teraflops(MatmulPrecision precision) const;
  /// What it lacks, in words: "no bfloat16, no TF32"; empty where that is nothing.
  std::string lacks() const;
};
std::span<const GpuModel> gpu_models();
/// A usage error for one that the kernels do not run on.
void require_kernels(const GpuModel& gpu);

/// Where the ranks of a run are.
struct RankLayout {
  int nodes = 1, ranks_per_node = 1;

  int ranks() const { return nodes * ranks_per_node; }
};

/// The model that a name means: "RTX 4090", "4090", "NVIDIA H100 80GB HBM3". Null if there is none, also for a variant
/// of one that is here ("RTX 4090 Laptop GPU").
const GpuModel* find_gpu(std::string_view name);

/// How so many ranks are connected that each have such a GPU: as fast as NCCL takes NVLink, PCIe and networks to be,
/// which is 75 to 96 % of what data sheets say. `network_gbps`: Gb/s of each GPU to other machines; without it 400 with
/// NVLink 4 and 5, 200 with NVLink 3, and a share of 100 with PCIe. Source: NCCL 2.2x, src/graph/topo.h and tuning.cc.
Interconnect interconnect_of(const GpuModel& gpu, const RankLayout& ranks, std::optional<double> network_gbps = {});

/// Bytes of a GPU that a run may take: what the driver and the CUDA context need is left out.
std::size_t usable_memory(const GpuModel& gpu);

}  // namespace qtrain
