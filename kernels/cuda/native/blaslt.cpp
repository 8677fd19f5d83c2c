#include "kernels/cuda/native/blaslt.h"

#include <dlfcn.h>

#include <string>

#include "core/os/shared_library.h"

namespace qtrain::cuda {
namespace {

void* open_library() {
  const SharedLibrary library = open_shared_library(blaslt_file());
  if (library.handle) return library.handle;
  fail(ErrorKind::usage,
       {.cause = "GEMMs need cuBLASLt, which cannot be loaded: " + library.problem,
        .remedy = "install the CUDA " + std::to_string(CUBLAS_VER_MAJOR) +
                  " libraries (libcublas, or the Python package nvidia-cublas next to this program) or "
                  "put them on LD_LIBRARY_PATH, or use --device cpu"});
}

template <class F>
void load(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) fail(ErrorKind::usage, {.cause = std::string("cuBLASLt has no function ") + name});
}

}  // namespace

std::string blaslt_file() {
  return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
}

Blaslt::Blaslt() {
  void* library = open_library();
  load(library, "cublasLtCreate", functions_.create);
  load(library, "cublasLtDestroy", functions_.destroy);
  load(library, "cublasLtGetVersion", functions_.version);
  load(library, "cublasLtMatmul", functions_.matmul);
  load(library, "cublasLtMatmulDescCreate", functions_.desc_create);
  load(library, "cublasLtMatmulDescDestroy", functions_.desc_destroy);
  load(library, "cublasLtMatmulDescSetAttribute", functions_.desc_set);
  load(library, "cublasLtMatrixLayoutCreate", functions_.layout_create);
  load(library, "cublasLtMatrixLayoutDestroy", functions_.layout_destroy);
  load(library, "cublasLtMatmulPreferenceCreate", functions_.preference_create);
  load(library, "cublasLtMatmulPreferenceDestroy", functions_.preference_destroy);
  load(library, "cublasLtMatmulPreferenceSetAttribute", functions_.preference_set);
  load(library, "cublasLtMatmulAlgoGetHeuristic", functions_.heuristic);
  load(library, "cublasLtMatmulAlgoCheck", functions_.algo_check);
  verify(functions_.create(&handle_), "cublasLtCreate");
}

Blaslt::~Blaslt() {
  if (handle_) functions_.destroy(handle_);
}

void Blaslt::verify(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(ErrorKind::internal, {.cause = std::string(what) + ": cuBLAS status " + std::to_string(status)});
}

cudaDataType_t cuda_type(DType d) {
  switch (d) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::f8_e4m3: return CUDA_R_8F_E4M3;
    case DType::f8_e5m2: return CUDA_R_8F_E5M2;
    default: fail(ErrorKind::internal, {.cause = "no CUDA GEMM of " + std::string(name_of(d))});
  }
}

}  // namespace qtrain::cuda
