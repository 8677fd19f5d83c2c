#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/gemm.h"

/// How GEMMs are distinguished for autotuning, and how one is tried. Plain host code: its decisions are the same with
/// and without a GPU.
namespace qtrain {

/// Everything that determines how a GEMM is computed; pointers count by their alignment only. A bias has the result's
/// type.
struct GemmKey {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  ///< elements between rows
  DType operands = DType::f32, second = DType::f32;       ///< types of A and B, which may differ in FP8
  DType result = DType::f32;
  ops::Fp8Block block_a = ops::Fp8Block::matrix, block_b = ops::Fp8Block::matrix;  ///< that share a scale in FP8
  bool transpose_a = false, transpose_b = false, bias = false, adds = false, tf32 = false;
  std::uint32_t align_a = 16, align_b = 16, align_c = 16, align_bias = 16;  ///< bytes, a power of two up to 256

  /// The alignment that a kernel may assume where it writes: the library does not ask for the alignment of a bias, and
  /// reads it in vectors as wide as those of the result.
  std::uint32_t align_written() const { return bias && align_bias < align_c ? align_bias : align_c; }
  /// Rows of A as stored: the batch's tokens, in every GEMM of a model.
  std::int64_t batch_rows() const { return transpose_a ? k : m; }

  auto operator<=>(const GemmKey&) const = default;
};
/// The key of a GEMM whose operands have one type.
GemmKey key_of(const ops::Gemm& g, MatmulPrecision matmul);
/// The same key with the largest number of rows in its size class, so that batches of different sizes share a choice.
/// There are four classes per doubling.
GemmKey class_of(GemmKey key);
/// "m512 n576 k1536 bfloat16>float32 nt adds 256/256/256": the name that a choice is stored under.
std::string to_string(const GemmKey& key);

/// "512x576x1536 bfloat16>float32 adds": rows, columns and inner dimension of a GEMM, for messages.
std::string sizes_of(const GemmKey& key);

/// Whether autotuning is worthwhile. A GEMM of few rows is bound by reading its weight, and decoding has GEMMs of many
/// sizes: these use the library's first suggestion.
inline bool is_tried(const GemmKey& key) {
  constexpr std::int64_t kFewRows = 256;
  return key.batch_rows() > kFewRows;
}

/// The GEMM with its result in `memory`, so that it can be repeated: a GEMM that accumulates must not run twice on its
/// real result. If the result does not fit, as many of its rows as fit, in whole tiles; nothing if that is not even one
/// tile.
std::optional<ops::Gemm> repeatable(const ops::Gemm& g, Tensor memory);

}  // namespace qtrain
