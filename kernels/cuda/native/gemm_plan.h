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

/// The descriptors of one GEMM and the algorithm that computes it. Row-major C = A·B is the library's column-major
/// Cᵀ = Bᵀ·Aᵀ, so its first operand is B.
class GemmPlan {
 public:
  GemmPlan(const Blaslt& library, const GemmKey& key);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  /// Of the next GEMM; nothing where the GEMM has none.
  void add_bias(ConstTensor bias);
  /// Queues the GEMM; the status of the library.
  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, const ops::Gemm& g, Workspace workspace,
                     cudaStream_t stream);
  /// The library's candidates, its favorite first; none where it has no algorithm.
  std::vector<cublasLtMatmulAlgo_t> candidates(std::size_t workspace_bytes) const;
  bool usable(const cublasLtMatmulAlgo_t& algorithm, std::size_t workspace_bytes) const;

  std::optional<cublasLtMatmulAlgo_t> algorithm;  ///< the chosen one, if there is any

 private:
  const Blaslt& library_;
  GemmKey key_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

/// An algorithm as it is kept, and the one that was kept.
inline GemmChoices::Algorithm words_of(const cublasLtMatmulAlgo_t& algorithm) {
  return std::to_array(algorithm.data);
}
cublasLtMatmulAlgo_t algorithm_of(const GemmChoices::Algorithm& words);

}  // namespace qtrain::cuda
