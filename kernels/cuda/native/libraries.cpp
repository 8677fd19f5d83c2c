#include "kernels/libraries.h"

#include "core/os/shared_library.h"
#include "kernels/cuda/native/blaslt.h"

namespace qtrain {

std::vector<CudaLibrary> cuda_libraries() {
  const std::string name = cuda::blaslt_file();
  const SharedLibrary library = open_shared_library(name);
  return {{.name = "cuBLASLt", .file = library.handle ? library.file : name, .problem = library.problem}};
}

}  // namespace qtrain
