#pragma once
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "core/device.h"
#include "core/json.h"
#include "kernels/cuda/native/blaslt.h"
#include "kernels/gemm.h"

namespace qtrain::cuda {

/// Everything that decides how a product is computed; pointers count by their alignment only. A bias has the result's
/// type.
struct ProductKey {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  ///< elements between rows
  DType operands = DType::f32, result = DType::f32;
  bool transpose_a = false, transpose_b = false, bias = false, adds = false, tf32 = false;
  std::uint32_t align_a = 16, align_b = 16, align_c = 16, align_bias = 16;  ///< bytes, a power of two up to 256

  auto operator<=>(const ProductKey&) const = default;
};
/// "m512 n576 k1536 bf16>f32 nt adds 256/256/256": the name of a product in the file of choices.
std::string to_string(const ProductKey& key);

/// Device memory that the library may use during a product.
struct Workspace {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// The descriptors of one product and the algorithm that computes it. Row-major C = A·B is the library's column-major
/// Cᵀ = Bᵀ·Aᵀ, so its first operand is B.
class ProductPlan {
 public:
  ProductPlan(const Blaslt& library, const ProductKey& key);
  ~ProductPlan();
  ProductPlan(const ProductPlan&) = delete;
  ProductPlan& operator=(const ProductPlan&) = delete;

  /// Of the next product; nothing where the product has none.
  void add_bias(ConstTensor bias);
  /// Queues the product; the status of the library.
  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, const ops::Gemm& g, Workspace workspace,
                     cudaStream_t stream);
  /// The library's candidates, its favourite first.
  std::vector<cublasLtMatmulAlgo_t> candidates(std::size_t workspace_bytes) const;
  bool usable(const cublasLtMatmulAlgo_t& algorithm, std::size_t workspace_bytes) const;

  std::optional<cublasLtMatmulAlgo_t> algorithm;  ///< the chosen one

 private:
  const Blaslt& library_;
  ProductKey key_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

/// Algorithms found by timing, kept on disk for one GPU and library version, so that every run computes in the same
/// way: $XDG_CACHE_HOME/qtrain or ~/.cache/qtrain. A file that cannot be read or written is done without.
class ProductChoices {
 public:
  ProductChoices(const std::string& gpu, std::size_t library_version);
  std::optional<cublasLtMatmulAlgo_t> find(const ProductKey& key) const;
  void remember(const ProductKey& key, const cublasLtMatmulAlgo_t& algorithm);

 private:
  std::filesystem::path file_;
  Json choices_ = Json::object();
};

}  // namespace qtrain::cuda
