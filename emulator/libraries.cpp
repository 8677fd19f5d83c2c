#include "kernels/libraries.h"

namespace qtrain {

std::vector<CudaLibrary> cuda_libraries() {
  return {};
}

}  // namespace qtrain
