#include "kernels/adafactor.h"

#include "kernels/cuda/column_parts.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kShared = sizeof(BlockPartials<double>);

/// Inputs of all kernels of a step. If factor[1] is 0, none of them writes to state or param.
struct Step {
  const float* grad;
  float *row, *column, *square;
  const double *hyperparameters, *factor;
  std::int64_t rows, width;  ///< a vector is one row
  float eps;

  __device__ bool applied() const { return factor[1] != 0; }
  __device__ float scaled(std::int64_t i) const { return grad[i] * static_cast<float>(factor[0]); }
  __device__ float moved(float state, float square) const {
    return static_cast<float>(hyperparameters[1]) * state + static_cast<float>(1 - hyperparameters[1]) * (square + eps);
  }
  /// The update of element i before clipping; `mean` is that of all rows' state.
  __device__ float update(std::int64_t i, const double* mean) const {
    const float g = scaled(i);
    if (square) return g / sqrtf(square[i]);
    return g / sqrtf(row[i / width] / static_cast<float>(*mean)) / sqrtf(column[i % width]);
  }
};

/// Block r processes row r.
__global__ void __launch_bounds__(kThreads) move_rows(Step a) {
  auto& partials = shared_memory<BlockPartials<double>>();
  if (!a.applied()) return;
  const std::int64_t begin = blockIdx.x * a.width;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < a.width; i += blockDim.x) {
    const float g = a.scaled(begin + i);
    sum += g * g;
  }
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0)
    a.row[blockIdx.x] = a.moved(a.row[blockIdx.x], static_cast<float>(sum / static_cast<double>(a.width)));
}

/// Block (x, p): columns of x, rows p, p + parts, ...
__global__ void __launch_bounds__(kThreads) column_square_parts(ColumnParts out, Step a) {
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= out.width) return;
  float sum = 0;
  for (std::int64_t r = blockIdx.y; r < a.rows; r += gridDim.y) {
    const float g = a.scaled(r * out.width + column);
    sum += g * g;
  }
  out.data[blockIdx.y * std::int64_t{out.width} + column] = sum;
}

__global__ void __launch_bounds__(kThreads) move_columns(Step a, ColumnParts in) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= in.width || !a.applied()) return;
  float sum = 0;
  for (int p = 0; p < in.parts; ++p) sum += in.data[static_cast<std::int64_t>(p) * in.width + column];
  a.column[column] = a.moved(a.column[column], sum / static_cast<float>(a.rows));
}

__global__ void __launch_bounds__(kThreads) move_squares(Step a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.width || !a.applied()) return;
  const float g = a.scaled(i);
  a.square[i] = a.moved(a.square[i], g * g);
}

/// Runs in one block.
template <class T>
__global__ void __launch_bounds__(kThreads) mean_of(double* out, const T* values, std::int64_t n, double divisor) {
  auto& partials = shared_memory<BlockPartials<double>>();
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<double>(values[i]);
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) *out = sum / divisor;
}

/// Block b sums the squares of its elements in a grid-stride loop.
__global__ void __launch_bounds__(kThreads) update_square_parts(double* parts, Step a, const double* mean) {
  auto& partials = shared_memory<BlockPartials<double>>();
  double sum = 0;
  const std::int64_t n = a.rows * a.width, stride = std::int64_t{gridDim.x} * blockDim.x;
  if (a.applied())
    for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
      const double u = a.update(i, mean);
      sum += u * u;
    }
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

struct Apply {
  float* param;
  Step step;
  const double *mean, *square;  ///< mean of the row state; mean of the squares of the update
  double clip, decay;

  template <int N>
  __device__ void at(std::int64_t i) const {
    static_assert(N == 1);
    if (!step.applied()) return;
    const double lr = step.hyperparameters[0], over = sqrt(*square) / clip;
    const float rate = static_cast<float>(lr) / static_cast<float>(over > 1 ? over : 1);
    param[i] = param[i] * static_cast<float>(1 - lr * decay) - step.update(i, mean) * rate;
  }
};

void move_state(Ctx& ctx, const Step& step) {
  const auto blocks = [](std::int64_t n) { return static_cast<unsigned>(ceil_div(n, std::int64_t{kThreads})); };
  if (step.square) return launch(ctx, "adafactor_squares", move_squares, {blocks(step.width), kThreads}, step);
  launch(ctx, "adafactor_rows", move_rows, {static_cast<unsigned>(step.rows), kThreads, kShared}, step);
  const ColumnParts parts = column_parts(ctx, step.rows, part_of_columns(step.width, kThreads));
  const dim3 grid(blocks(step.width), static_cast<unsigned>(parts.parts));
  launch(ctx, "adafactor_column_parts", column_square_parts, {grid, kThreads}, parts, step);
  launch(ctx, "adafactor_columns", move_columns, {blocks(step.width), kThreads}, step, parts);
}

}  // namespace

void run_cuda(Ctx& ctx, const Adafactor& a) {
  const bool matrix = a.param.shape.rank == 2;
  const std::int64_t n = a.param.numel(), rows = matrix ? a.param.shape[0] : 1;
  const Step step{.grad = a.grad.as<float>(),
                  .row = matrix ? a.row.as<float>() : nullptr,
                  .column = matrix ? a.column.as<float>() : nullptr,
                  .square = matrix ? nullptr : a.square.as<float>(),
                  .hyperparameters = a.hyperparameters.as<double>(),
                  .factor = a.factor.as<double>(),
                  .rows = rows,
                  .width = n / rows,
                  .eps = static_cast<float>(a.eps)};
  move_state(ctx, step);
  constexpr std::int64_t kMax = 1024, kOfThread = 16;
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(n, kThreads * kOfThread), 1, kMax);
  auto* mean = reinterpret_cast<double*>(ctx.scratch((2 + kMax) * sizeof(double)));
  double *square = mean + 1, *parts = mean + 2;
  if (matrix) launch(ctx, "adafactor_row_mean", mean_of<float>, {1, kThreads, kShared}, mean, step.row, rows, rows);
  launch(ctx, "adafactor_update_parts", update_square_parts, {static_cast<unsigned>(blocks), kThreads, kShared}, parts,
         step, mean);
  launch(ctx, "adafactor_update_square", mean_of<double>, {1, kThreads, kShared}, square, parts, blocks, n);
  launch_elements<1>(ctx, "adafactor", n, Apply{a.param.as<float>(), step, mean, square, a.clip, a.decay});
}

}  // namespace qtrain::ops
