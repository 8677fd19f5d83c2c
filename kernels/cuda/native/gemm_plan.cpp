#include "kernels/cuda/native/gemm_plan.h"

#include <algorithm>
#include <array>

namespace qtrain::cuda {
namespace {

std::uint64_t unsigned_of(std::int64_t n) {
  return static_cast<std::uint64_t>(n);
}

std::int32_t scale_mode(ops::Fp8Block block) {
  switch (block) {
    case ops::Fp8Block::vector: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case ops::Fp8Block::square: return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default: return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

cublasComputeType_t compute_type(const GemmKey& key) {
  return key.operands == DType::f32 && key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

}  // namespace

cublasLtMatmulAlgo_t algorithm_of(const GemmChoices::Algorithm& words) {
  cublasLtMatmulAlgo_t algorithm;
  std::copy(words.begin(), words.end(), algorithm.data);
  return algorithm;
}

GemmPlan::GemmPlan(const Blaslt& library, const GemmKey& key) : library_(library), key_(key) {
  Blaslt::verify(library_->desc_create(&desc_, compute_type(key), CUDA_R_32F), "cublasLtMatmulDescCreate");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    Blaslt::verify(library_->desc_set(desc_, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(key.result));
  }
  // Backward passes accumulate with full precision, because their operands have fewer bits. Sums of blocks are added in
  // f32 in any case.
  const bool in_blocks = key.block_a != ops::Fp8Block::matrix;
  const bool fast = key.operands == DType::f8_e4m3 && key.second == key.operands && !in_blocks;
  if (is_fp8(key.operands)) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{fast});
  if (in_blocks) {  // the library's first operand is B
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(key.block_b));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(key.block_a));
  }
  // A row-major matrix with `rows` rows and `columns` columns is a column-major one of `columns` by `rows`.
  const auto layout = [&](cublasLtMatrixLayout_t& to, DType type, const Shape& s, std::int64_t stride) {
    Blaslt::verify(library_->layout_create(&to, cuda_type(type), unsigned_of(s[1]), unsigned_of(s[0]), stride),
                   "cublasLtMatrixLayoutCreate");
  };
  layout(first_, key.second, key.transpose_b ? Shape(key.n, key.k) : Shape(key.k, key.n), key.stride_b);
  layout(second_, key.operands, key.transpose_a ? Shape(key.k, key.m) : Shape(key.m, key.k), key.stride_a);
  layout(result_, key.result, {key.m, key.n}, key.stride_c);
}

GemmPlan::~GemmPlan() {
  for (const cublasLtMatrixLayout_t layout : {first_, second_, result_})
    if (layout) library_->layout_destroy(layout);
  if (desc_) library_->desc_destroy(desc_);
}

void GemmPlan::add_bias(ConstTensor bias) {
  if (!bias) return;
  const void* at = bias.data;
  Blaslt::verify(library_->desc_set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at, sizeof(at)),
                 "cublasLtMatmulDescSetAttribute");
}

void GemmPlan::set_scales(ConstTensor a, ConstTensor b) {
  // The library's first operand is B.
  for (const auto& [attribute, scale] : {std::pair(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b.data),
                                         std::pair(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a.data)}) {
    const void* at = scale;
    Blaslt::verify(library_->desc_set(desc_, attribute, &at, sizeof(at)), "cublasLtMatmulDescSetAttribute");
  }
}

cublasStatus_t GemmPlan::run(const cublasLtMatmulAlgo_t& chosen, const ops::Gemm& g, Workspace workspace,
                             cudaStream_t stream) {
  const float alpha = static_cast<float>(g.alpha), beta = g.adds() ? 1.0f : 0.0f;
  const std::byte* sum = g.residual ? g.residual.data : g.c.t.data;
  add_bias(g.bias);
  return library_->matmul(library_.handle(), desc_, &alpha, g.b.data, first_, g.a.data, second_, &beta, sum, result_,
                          g.c.t.data, result_, &chosen, workspace.data, workspace.bytes, stream);
}

std::vector<cublasLtMatmulAlgo_t> GemmPlan::candidates(std::size_t workspace_bytes) const {
  constexpr int kMax = 16;
  cublasLtMatmulPreference_t preference = nullptr;
  Blaslt::verify(library_->preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    Blaslt::verify(library_->preference_set(preference, attribute, &value, sizeof(value)),
                   "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  // Partial sums that are added in 16 bits would lose precision.
  const std::uint32_t sums =
      key_.result == DType::f32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key_.align_b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key_.align_a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key_.align_c);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key_.align_written());
  std::array<cublasLtMatmulHeuristicResult_t, kMax> results{};
  int found = 0;
  const cublasStatus_t status = library_->heuristic(library_.handle(), desc_, first_, second_, result_, result_,
                                                    preference, kMax, results.data(), &found);
  library_->preference_destroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  Blaslt::verify(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i)
    if (results[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(results[static_cast<std::size_t>(i)].algo);
  return algorithms;
}

bool GemmPlan::usable(const cublasLtMatmulAlgo_t& chosen, std::size_t workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t result{};
  return library_->algo_check(library_.handle(), desc_, first_, second_, result_, result_, &chosen, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes;
}

}  // namespace qtrain::cuda
