#pragma once
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/grouped_gemm.h"

/// One launch for all experts. What an expert's rows are is read from `offsets` by the blocks themselves: of the row
/// tiles, which the host can only bound, expert e has those from offsets[e] / height + e on. These starts rise with e
/// and lie at least as far apart as its rows need, so that a block finds its expert by bisection, and a tile too many
/// ends at once.
namespace qtrain::ops {

/// Elements of an operand as they lie in memory: row by row of C (column by column), with the summed index running
/// fastest, or the other way around.
enum class OperandLayout : std::uint8_t { by_row, by_depth };

/// One operand as a block sees it: its rows (columns) [first, end) of C, the summed index in [.., depth_end).
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
  int experts, M, N, K;  ///< of GroupedGemm M is not used, of its gradient K
  float alpha;
  bool adds, by_pairs;  ///< whether two neighbors of C can be moved at once
};

/// An expert's part of GroupedGemm.
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

/// Operands of the block's tile of GroupedGemm; B_e lies [E, N, K] or [E, K, N].
__device__ __forceinline__ GroupedSource source_of_rows(const GroupedArgs& a, const GroupedRows& tile) {
  return {a.a, a.a_type, a.a_step, tile.first, tile.end, a.K};
}
__device__ __forceinline__ GroupedSource source_of_weight(const GroupedArgs& a, const GroupedRows& tile, int column) {
  return {elements(a.b, a.b_type, std::int64_t{tile.expert} * a.N * a.K), a.b_type, a.b_step, column, a.N, a.K};
}

/// Where a block's tile lies in C: rows [first, end), columns from `column` on.
struct GroupedPlace {
  std::int64_t expert;  ///< elements before its matrix
  int first, end, column;
};

/// Block (x, y, z): a tile of the matrix of expert z.
struct GroupedMatrix {
  int row, column, first, end;  ///< of the matrix; of the expert's rows
  std::int64_t matrix;
};
template <int Height, int Width>
__device__ __forceinline__ GroupedMatrix grouped_matrix(const GroupedArgs& a) {
  const int e = static_cast<int>(blockIdx.z);
  return {static_cast<int>(blockIdx.x) * Height, static_cast<int>(blockIdx.y) * Width, a.offsets[e], a.offsets[e + 1],
          std::int64_t{e} * a.M * a.N};
}

/// Tiles of `tile` elements that cover n.
inline unsigned tiles_of(std::int64_t n, int tile) {
  return static_cast<unsigned>(ceil_div(n, std::int64_t{tile}));
}

/// The kernels of tensor cores for operands of `type`, bf16 or f16; others are rounded to it. C is f32 or of `type`.
void grouped_gemm_on_units(Ctx& ctx, const GroupedArgs& args, std::int64_t rows, OperandLayout weight, DType type);
void grouped_gemm_grad_on_units(Ctx& ctx, const GroupedArgs& args, DType type);

}  // namespace qtrain::ops
