#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// A GPU's version, as 9.0 of an H200.
struct ComputeCapability {
  int major = 0, minor = 0;
};

/// Whether code for `architectures`, as CMake names them ("80-real 90a-real 120"), runs on a GPU. "-real" is machine
/// code, which later GPUs of the same major version run too, but with an `a` only its own; "-virtual" is PTX, which the
/// driver translates for every later GPU; neither means both. Source: CUDA C++ Programming Guide, "GPU Compilation".
bool runs_on(std::string_view architectures, ComputeCapability gpu);

/// Why a build for `architectures` cannot use the GPU, as one clause; empty if it can.
std::string architecture_problem(std::string_view architectures, ComputeCapability gpu);

}  // namespace qtrain
