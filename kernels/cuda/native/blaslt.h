#pragma once
#include <cublasLt.h>

#include <memory>
#include <string>

#include "core/tensor.h"

namespace qtrain::cuda {

/// The cuBLASLt functions in use, from the shared library that is loaded for the first GEMM; the program starts without
/// it. Source: cuBLAS documentation, chapter "Using the cuBLASLt API".
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

/// A handle of the library.
class Blaslt {
 public:
  /// Throws a usage error that names the files that were tried, unless the library of this toolkit's major version
  /// loads.
  Blaslt();
  ~Blaslt();
  Blaslt(const Blaslt&) = delete;
  Blaslt& operator=(const Blaslt&) = delete;

  const BlasltFunctions* operator->() const { return &functions_; }
  cublasLtHandle_t handle() const { return handle_; }
  std::size_t version() const { return functions_.version(); }
  /// Throws an internal error that names the failed call, unless `status` is success.
  static void verify(cublasStatus_t status, const char* what);

 private:
  BlasltFunctions functions_{};
  cublasLtHandle_t handle_ = nullptr;
};

/// The name of the library's file.
std::string blaslt_file();

cudaDataType_t cuda_type(DType d);

}  // namespace qtrain::cuda
