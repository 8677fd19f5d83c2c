#pragma once
#include <cublasLt.h>

#include <cstdint>
#include <string>

/// What a call describes, and which of it cuBLASLt accepts. Source: cuBLAS documentation, chapter "Using the cuBLASLt
/// API", and the comments of cublasLt.h.
namespace qtrain::stand_in {

/// A column-major matrix.
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading;  ///< elements from one column to the next

  bool is_fp8() const { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
  std::size_t element() const { return type == CUDA_R_32F ? 4 : is_fp8() ? 1 : 2; }
  bool operator==(const Layout&) const = default;
};

struct Matmul {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;  ///< -1: that of D
  std::int8_t fast_sums = 0;
  const void *a_scale = nullptr, *b_scale = nullptr;  ///< f32 on the device: the scales of A and B in FP8
  std::int32_t a_scale_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, b_scale_mode = a_scale_mode;

  bool adds_bias() const { return epilogue == CUBLASLT_EPILOGUE_BIAS; }
  bool has_blocks() const {
    return a_scale_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
           b_scale_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
};

/// The scales of an operand with `outer` rows (A) or columns (B) of `inner` elements. Source: cuBLAS documentation,
/// "128-element 1D and 128x128 2D Block Scaling For FP8 Data Types".
struct Scales {
  std::int32_t mode;
  std::uint64_t outer, inner;

  static constexpr std::uint64_t kBlock = 128;
  std::uint64_t across() const { return (inner + kBlock - 1) / kBlock; }
  std::uint64_t count() const;
  /// The place of the scale of an element.
  std::uint64_t at(std::uint64_t outer_index, std::uint64_t inner_index) const;
};

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  ///< of A, B, C and D, in bytes
};

/// D [m, n] = alpha op(A) [m, k] op(B) [k, n] + beta C + bias.
struct Problem {
  Matmul operation;
  Layout a, b, c, d;

  bool transposes_a() const { return operation.transpose_a != CUBLAS_OP_N; }
  bool transposes_b() const { return operation.transpose_b != CUBLAS_OP_N; }
  std::uint64_t k() const { return transposes_a() ? a.rows : a.columns; }
  /// Why the library does not accept it; empty if it does.
  std::string refusal() const;
};

/// An algorithm of this library, as it is stored in cublasLtMatmulAlgo_t.
class Algorithm {
 public:
  enum class Kind : std::uint64_t { vectors, split_in_f32, split_in_type_of_d, elements, last = elements };

  Algorithm(Kind kind, const Problem& problem, const Preference& preference);
  /// From its stored form; check `refusal` before any use.
  explicit Algorithm(const cublasLtMatmulAlgo_t& stored);
  cublasLtMatmulAlgo_t stored() const;

  /// Why it cannot compute this problem; empty if it can.
  std::string refusal(const Problem& problem) const;
  bool is_allowed_by(const Preference& preference) const;
  std::size_t workspace() const;
  /// The alignment in bytes that it was chosen for: of A, B, C, D and the bias.
  std::uint64_t alignment(int operand) const { return (words_[1] >> (10 * operand)) & 1023; }

 private:
  Kind kind() const { return static_cast<Kind>(words_[0] & 255); }
  bool is_split() const { return kind() == Kind::split_in_f32 || kind() == Kind::split_in_type_of_d; }
  static std::uint64_t signature(const Problem& problem);

  std::uint64_t words_[8] = {};  ///< identity and kind; alignments; signature
};

/// The largest power of two up to 256 that divides an address; 256 for null.
std::uint64_t alignment_of(const void* p);

}  // namespace qtrain::stand_in
