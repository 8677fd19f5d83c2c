#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/gemm.h"

/// GEMMs as a library with many algorithms tells them apart, and how one is tried. Plain code: what it decides is
/// the same with and without a GPU.
namespace qtrain {

/// Everything that decides how a GEMM is computed; pointers count by their alignment only. A bias has the result's
/// type.
struct GemmKey {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  ///< elements between rows
  DType operands = DType::f32, result = DType::f32;
  bool transpose_a = false, transpose_b = false, bias = false, adds = false, tf32 = false;
  std::uint32_t align_a = 16, align_b = 16, align_c = 16, align_bias = 16;  ///< bytes, a power of two up to 256

  /// What a kernel may count on where it writes: the library asks for no alignment of a bias, and reads it in packs as
  /// wide as those of the result.
  std::uint32_t align_written() const { return bias && align_bias < align_c ? align_bias : align_c; }
  /// Rows of A as it lies in memory: the tokens of a batch, in each GEMM of a model.
  std::int64_t batch_rows() const { return transpose_a ? k : m; }

  auto operator<=>(const GemmKey&) const = default;
};
/// Of one GEMM, whose operands have one type.
GemmKey key_of(const ops::Gemm& g, MatmulPrecision matmul);
/// The same with the most rows of its class: batches of unequal sizes share a choice. Four classes for each doubling.
GemmKey class_of(GemmKey key);
/// "m512 n576 k1536 bfloat16>float32 nt adds 256/256/256": the name of a GEMM among the choices.
std::string to_string(const GemmKey& key);

/// "512x576x1536 bfloat16>float32 adds": rows, columns and inner dimension of a GEMM, for people.
std::string sizes_of(const GemmKey& key);

/// Whether algorithms are worth trying. A GEMM of fewer rows reads its weight and little else, and those of decoding
/// come in many sizes: for them the library's favorite has to do.
inline bool is_tried(const GemmKey& key) {
  constexpr std::int64_t kFewRows = 256;
  return key.batch_rows() > kFewRows;
}

/// The GEMM with its sums in `memory`, so that it may be repeated: a GEMM that adds cannot be on its own result.
/// Where they do not fit, as many of its rows as do, in whole tiles; nothing where that is not one.
std::optional<ops::Gemm> repeatable(const ops::Gemm& g, Tensor memory);

}  // namespace qtrain
