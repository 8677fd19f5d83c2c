#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace qtrain {

/// A GPU as its data sheet describes it.
struct GpuModel {
  std::string_view name;
  double memory_gib;  ///< that the driver reports, about
  double teraflops;   ///< dense GEMMs of 16-bit floats with f32 sums
  double bandwidth;   ///< of its memory, GB/s
  int major;          ///< compute capability
};
std::span<const GpuModel> gpu_models();

/// The model that a name means: "RTX 4090", "4090", "NVIDIA H100 80GB HBM3". Null if there is none.
const GpuModel* find_gpu(std::string_view name);

/// Bytes of a GPU that a run may take: what the driver and the CUDA context need is left out.
std::size_t usable_memory(const GpuModel& gpu);

}  // namespace qtrain
