#pragma once
#include <string>
#include <vector>

namespace qtrain {

/// A library of CUDA's that is opened when the first op needs it.
struct CudaLibrary {
  std::string name, file;
  std::string problem = {};  ///< why it cannot be used; empty if it can
};
/// Those that this build's CUDA backend opens; only where kHasCuda.
std::vector<CudaLibrary> cuda_libraries();

}  // namespace qtrain
