#pragma once
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/grouped_gemm.h"

/// One launch for all experts. Blocks read from `offsets` which rows belong to an expert. The host only knows an upper
/// bound on the number of row tiles; expert e has those starting at offsets[e] / height + e. These starts ascend and
/// are at least as far apart as the expert's rows need, so a block finds its expert by binary search, and excess tiles
/// exit immediately.
namespace qtrain::ops {

/// The memory layout of an operand: by_row: rows (columns) of C, with the inner dimension contiguous; by_depth: the
/// transpose.
enum class OperandLayout : std::uint8_t { by_row, by_depth };

/// An operand of a block: its rows (columns) [first, end) of C, and the inner dimension up to depth_end.
struct GroupedSource {
  const void* data;
  DType dtype;
  std::int64_t step;
  int first, end, depth_end;
};

struct GroupedArgs {
  void* c;
  const void *a, *b;
  const std::int32_t* offsets;
  DType c_type, a_type, b_type;
  std::int64_t a_step, b_step, c_step;
  int experts, M, N, K;  ///< M is unused by GroupedGemm, K by its gradient
  float alpha;
  bool adds, by_pairs;  ///< by_pairs: whether two adjacent elements of C can be stored together
};

/// A tile of an expert's rows in GroupedGemm.
struct GroupedRows {
  int expert, first, end;
};
template <int Height>
__device__ __forceinline__ GroupedRows find_grouped_rows(const GroupedArgs& a, int tile) {
  int low = 0, high = a.experts;  // starts[low] <= tile < starts[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (a.offsets[middle] / Height + middle <= tile ? low : high) = middle;
  }
  const int first = a.offsets[low];
  return {low, first + (tile - first / Height - low) * Height, a.offsets[low + 1]};
}
template <int Height>
unsigned max_row_tiles(std::int64_t rows, std::int64_t experts) {
  return static_cast<unsigned>(rows / Height + experts);
}

template <class T>
__device__ __forceinline__ const T* elements(const void* data, std::int64_t from) {
  return static_cast<const T*>(data) + from;
}
__device__ __forceinline__ const void* elements(const void* data, DType dtype, std::int64_t from) {
  return static_cast<const char*>(data) + from * (dtype == DType::f32 ? 4 : 2);
}

/// The operands of the block's tile in GroupedGemm; B_e is [E, N, K] or [E, K, N].
__device__ __forceinline__ GroupedSource source_of_rows(const GroupedArgs& a, const GroupedRows& tile) {
  return {a.a, a.a_type, a.a_step, tile.first, tile.end, a.K};
}
__device__ __forceinline__ GroupedSource source_of_weight(const GroupedArgs& a, const GroupedRows& tile, int column) {
  return {elements(a.b, a.b_type, std::int64_t{tile.expert} * a.N * a.K), a.b_type, a.b_step, column, a.N, a.K};
}

/// The block's tile in C: rows [first, end), columns starting at `column`.
struct GroupedPlace {
  std::int64_t expert;  ///< offset of the expert's matrix in elements
  int first, end, column;
};

/// Block (x, y, z): a tile of the matrix of expert z.
struct GroupedMatrix {
  int row, column, first, end;  ///< row, column: in the matrix; first, end: the expert's rows
  std::int64_t matrix;
};
template <int Height, int Width>
__device__ __forceinline__ GroupedMatrix grouped_matrix(const GroupedArgs& a) {
  const int e = static_cast<int>(blockIdx.z);
  return {static_cast<int>(blockIdx.x) * Height, static_cast<int>(blockIdx.y) * Width, a.offsets[e], a.offsets[e + 1],
          std::int64_t{e} * a.M * a.N};
}

/// Number of tiles of `tile` elements that cover n.
inline unsigned tiles_of(std::int64_t n, int tile) {
  return static_cast<unsigned>(ceil_div(n, std::int64_t{tile}));
}

/// Tensor-core kernels for operands of `type`, bf16 or f16; other operands are rounded to it. C is f32 or of `type`.
void grouped_gemm_on_units(Ctx& ctx, const GroupedArgs& args, std::int64_t rows, OperandLayout weight, DType type);
void grouped_gemm_grad_on_units(Ctx& ctx, const GroupedArgs& args, DType type);

}  // namespace qtrain::ops
