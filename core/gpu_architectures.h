#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// The compute capability of a GPU, such as 9.0 for an H200.
struct ComputeCapability {
  int major = 0, minor = 0;
};

/// Whether code for `architectures`, as CMake names them ("80-real 90a-real 120"), runs on a GPU. "-real" means machine
/// code, which later GPUs of the same major version can run too, unless the number ends in `a`. "-virtual" means PTX,
/// which the driver compiles for every later GPU. No suffix means both. Source: CUDA C++ Programming Guide, "GPU
/// Compilation".
bool runs_on(std::string_view architectures, ComputeCapability gpu);

/// Why a build for `architectures` cannot use the GPU, as one clause; empty if it can.
std::string architecture_problem(std::string_view architectures, ComputeCapability gpu);

}  // namespace qtrain
