#pragma once
#include <optional>
#include <vector>

#include "kernels/cuda/native/blaslt.h"
#include "kernels/gemm_choices.h"
#include "kernels/gemm_key.h"

namespace qtrain::cuda {

/// Device memory that the library may use during a GEMM.
struct Workspace {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// The descriptors of one GEMM, and its algorithm. Row-major C = A·B is the library's column-major Cᵀ = Bᵀ·Aᵀ, so its
/// first operand is B.
class GemmPlan {
 public:
  GemmPlan(const Blaslt& library, const GemmKey& key);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  /// Sets the bias of the next GEMM; ignored for a GEMM without bias.
  void add_bias(ConstTensor bias);
  /// Sets the scales of the next GEMM in FP8, f32 on the device.
  void set_scales(ConstTensor a, ConstTensor b);
  /// Queues the GEMM; returns the library's status.
  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, const ops::Gemm& g, Workspace workspace,
                     cudaStream_t stream);
  /// The library's suggestions, best first; empty if it has no algorithm.
  std::vector<cublasLtMatmulAlgo_t> candidates(std::size_t workspace_bytes) const;
  bool usable(const cublasLtMatmulAlgo_t& algorithm, std::size_t workspace_bytes) const;

  std::optional<cublasLtMatmulAlgo_t> algorithm;  ///< the chosen one, if any

 private:
  const Blaslt& library_;
  GemmKey key_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

/// Convert an algorithm to its stored form and back.
inline GemmChoices::Algorithm words_of(const cublasLtMatmulAlgo_t& algorithm) {
  return std::to_array(algorithm.data);
}
cublasLtMatmulAlgo_t algorithm_of(const GemmChoices::Algorithm& words);

}  // namespace qtrain::cuda
