#pragma once
#include <string>
#include <vector>

namespace qtrain {

/// A CUDA library that is opened when the first op needs it.
struct CudaLibrary {
  std::string name, file;
  std::string problem = {};  ///< why it cannot be used; empty if it can
};
/// The libraries that this build's CUDA backend opens; only defined if kHasCuda.
std::vector<CudaLibrary> cuda_libraries();

}  // namespace qtrain
