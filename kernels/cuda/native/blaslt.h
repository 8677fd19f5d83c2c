#pragma once
#include <cublasLt.h>

#include <memory>
#include <string>

#include "core/tensor.h"

namespace qtrain::cuda {

/// The functions of cuBLASLt that are used, from the shared library that is found when the first GEMM is computed:
/// the program starts without it. Source: cuBLAS documentation, chapter "Using the cuBLASLt API".
struct BlasltFunctions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
};

/// One handle of the library.
class Blaslt {
 public:
  /// A usage error that names the files that were looked for, unless the library of this toolkit's major version loads.
  Blaslt();
  ~Blaslt();
  Blaslt(const Blaslt&) = delete;
  Blaslt& operator=(const Blaslt&) = delete;

  const BlasltFunctions* operator->() const { return &functions_; }
  cublasLtHandle_t handle() const { return handle_; }
  std::size_t version() const { return functions_.version(); }
  /// An internal error that says what was being done.
  static void verify(cublasStatus_t status, const char* what);

 private:
  BlasltFunctions functions_{};
  cublasLtHandle_t handle_ = nullptr;
};

cudaDataType_t cuda_type(DType d);

}  // namespace qtrain::cuda
