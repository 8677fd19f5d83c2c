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
  double memory_gib = 0;     ///< approximate memory that the driver reports
  double half = 0;           ///< TFLOP/s of dense 16-bit GEMMs with f32 accumulation on tensor cores; 0 if none
  double tf32 = 0;           ///< the same for TF32; 0 if none
  double float32 = 0;        ///< TFLOP/s of float32 outside tensor cores
  double bandwidth = 0;      ///< memory bandwidth, GB/s
  int major = 0, minor = 0;  ///< compute capability
  int nvlink = 0;            ///< NVLink generation between all GPUs of a machine; 0 for PCIe
  double peer = 0;           ///< maximum GB/s to other GPUs of the machine, per direction
  std::string source;

  /// Whether qtrain's kernels run on it: they need Turing or newer.
  bool has_kernels() const { return major * 10 + minor >= 75; }
  bool has_bf16() const { return major >= 8; }
  /// Peak TFLOP/s of GEMMs.
  double teraflops(MatmulPrecision precision) const;
  /// Missing features in words: "no bfloat16, no TF32"; empty if there are none.
  std::string lacks() const;
};
std::span<const GpuModel> gpu_models();
/// Throws ErrorKind::usage if the kernels do not run on the GPU.
void require_kernels(const GpuModel& gpu);

/// How the ranks of a run are spread over nodes.
struct RankLayout {
  int nodes = 1, ranks_per_node = 1;

  int ranks() const { return nodes * ranks_per_node; }
};

/// The text of a YAML table in this folder, by its file name without the extension ("gpus").
std::string_view gpu_text(std::string_view name);

/// The GPU model with that name: "RTX 4090", "4090", "NVIDIA H100 80GB HBM3". Null if it is unknown, also for a variant
/// of a known one ("RTX 4090 Laptop GPU").
const GpuModel* find_gpu(std::string_view name);

/// Links between ranks that each have such a GPU, with the speeds that NCCL assumes for NVLink, PCIe and networks: 75
/// to 96 % of the data sheets. `network_gbps`: Gb/s per GPU to other machines; the default is 400 with NVLink 4 and 5,
/// 200 with NVLink 3, and a share of 100 with PCIe. Source: NCCL 2.2x, src/graph/topo.h and tuning.cc.
Interconnect interconnect_of(const GpuModel& gpu, const RankLayout& ranks, std::optional<double> network_gbps = {});

/// Bytes of GPU memory that a run can use, without what the driver and the CUDA context need.
std::size_t usable_memory(const GpuModel& gpu);

}  // namespace qtrain
