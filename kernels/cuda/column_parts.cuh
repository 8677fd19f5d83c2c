#pragma once
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

/// Sums over rows in a fixed order: the rows are distributed over a number of blocks that depends only on the shape,
/// each block writes its sums [width] to scratch memory, and a second kernel adds these in order.
namespace qtrain {

struct ColumnParts {
  float* data;
  int parts, width;
};

inline ColumnParts column_parts(Ctx& ctx, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kMax = 256, kRowsOfPart = 4;
  const auto fits = static_cast<std::int64_t>(Ctx::kScratchBytes / sizeof(float)) / std::max<std::int64_t>(width, 1);
  const std::int64_t parts = std::max<std::int64_t>(std::min({kMax, fits, ceil_div(rows, kRowsOfPart)}), 1);
  std::byte* scratch = ctx.scratch(static_cast<std::size_t>(parts * width) * sizeof(float));
  return {reinterpret_cast<float*>(scratch), static_cast<int>(parts), static_cast<int>(width)};
}

inline constexpr unsigned kPartThreads = 128;

template <class W>
__global__ void __launch_bounds__(kPartThreads) add_column_parts(Target<W> y, ColumnParts in) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= in.width) return;
  float sum = 0;
  for (int p = 0; p < in.parts; ++p) sum += in.data[static_cast<std::int64_t>(p) * in.width + column];
  y.put(column, sum);
}

inline void finish_column_parts(Ctx& ctx, const Sink& y, const ColumnParts& parts) {
  dispatch_storage(y.t.dtype, [&]<class W>() {
    launch(ctx, "add_column_parts", add_column_parts<W>,
           {ceil_div(static_cast<unsigned>(parts.width), kPartThreads), kPartThreads}, target_of<W>(y), parts);
  });
}

}  // namespace qtrain
