#pragma once
#include <algorithm>
#include <array>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

/// Sums over rows in a fixed order: the rows are distributed over a number of blocks that depends only on the shape,
/// each block writes its sums [width] to scratch memory, and a second kernel adds these in a fixed order.
namespace qtrain {

struct ColumnParts {
  float* data;
  int parts, width;
};

struct PartShape {
  std::int64_t width;
  std::int64_t threads;  ///< of the blocks that make a part
};
/// For kernels in which each thread of a block adds one column.
inline PartShape part_of_columns(std::int64_t width, std::int64_t block) {
  return {width, ceil_div(std::max<std::int64_t>(width, 1), block) * block};
}

/// Parts for several sums at once, one after another in scratch memory; a sum over zero rows gets no part, and its
/// result is not written. There are enough blocks to fill a GPU of 132 multiprocessors, but no more, since every part
/// is written and read again.
template <std::size_t n>
std::array<ColumnParts, n> column_parts(Ctx& ctx, const std::array<std::int64_t, n>& rows, const PartShape& shape) {
  constexpr std::int64_t kThreads = 132 * 2048, kMax = 1024, kRowsOfPart = 4;
  const std::int64_t width = std::max<std::int64_t>(shape.width, 1);
  const auto fits = static_cast<std::int64_t>(Ctx::kScratchBytes / sizeof(float) / n) / width;
  const std::int64_t most = std::max<std::int64_t>(std::min({kMax, fits, kThreads / shape.threads}), 1);
  std::array<ColumnParts, n> parts;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < n; ++i) {
    parts[i] = {nullptr, static_cast<int>(std::min(most, ceil_div(rows[i], kRowsOfPart))),
                static_cast<int>(shape.width)};
    all += parts[i].parts;
  }
  auto* data = reinterpret_cast<float*>(ctx.scratch(static_cast<std::size_t>(all * width) * sizeof(float)));
  for (ColumnParts& p : parts) {
    if (p.parts > 0) p.data = data;
    data += p.parts * width;
  }
  return parts;
}
inline ColumnParts column_parts(Ctx& ctx, std::int64_t rows, const PartShape& shape) {
  return column_parts<1>(ctx, {std::max<std::int64_t>(rows, 1)}, shape)[0];
}

/// The columns of a block of add_column_parts, and the number of its threads that add each.
inline constexpr unsigned kPartColumns = 32, kPartAdders = 16;

struct AdderSums {
  float v[kPartAdders][kPartColumns];
};

/// Adder t of a column adds parts t, t + kPartAdders, ...; then their sums are added in order.
template <class W>
__global__ void __launch_bounds__(kPartColumns* kPartAdders) add_column_parts(Target<W> y, ColumnParts in) {
  AdderSums& sums = shared_memory<AdderSums>();
  const unsigned lane = threadIdx.x % kPartColumns, adder = threadIdx.x / kPartColumns;
  const int column = static_cast<int>(blockIdx.x * kPartColumns + lane);
  float sum = 0;
  if (column < in.width)
    for (int p = static_cast<int>(adder); p < in.parts; p += static_cast<int>(kPartAdders))
      sum += in.data[static_cast<std::int64_t>(p) * in.width + column];
  sums.v[adder][lane] = sum;
  __syncthreads();
  if (adder != 0 || column >= in.width) return;
  for (unsigned t = 1; t < kPartAdders; ++t) sum += sums.v[t][lane];
  y.put(column, sum);
}

inline void finish_column_parts(Ctx& ctx, const Sink& y, const ColumnParts& parts) {
  dispatch_storage(y.t.dtype, [&]<class W>() {
    launch(ctx, "add_column_parts", add_column_parts<W>,
           {ceil_div(static_cast<unsigned>(parts.width), kPartColumns), kPartColumns * kPartAdders, sizeof(AdderSums)},
           target_of<W>(y), parts);
  });
}

}  // namespace qtrain
