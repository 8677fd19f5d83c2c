#include "kernels/rms_norm.h"

#include <numeric>

#include "kernels/cuda/column_parts.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_weight.cuh"
#include "kernels/cuda/reduce.cuh"

namespace qtrain::ops {
namespace {

template <class T>
struct Forward {
  T* y;
  float* inv_rms;
  const T* x;
  const float* weight;
  int width;
  float eps, weight_offset;
  int y_step;  // elements between rows of y
  float* largest;
};

/// One block per row, which also finds its largest magnitude if that is wanted (kLargest).
template <class T, int N, bool kLargest>
__global__ void __launch_bounds__(1024) rms_norm_rows(Forward<T> a) {
  auto& partials = shared_memory<BlockPartials<float>>();
  const std::int64_t begin = std::int64_t{blockIdx.x} * a.width;
  float v[kSlots<N>][N];
  float squares = 0;
  for_packs<N>(a.width, [&](int slot, int column) {
    load_floats(v[slot], a.x + begin + column);
#pragma unroll
    for (int j = 0; j < N; ++j) squares += v[slot][j] * v[slot][j];
  });
  const float inv = rsqrtf(block_sum(squares, partials) / static_cast<float>(a.width) + a.eps);
  if (threadIdx.x == 0) a.inv_rms[blockIdx.x] = inv;
  float most = 0;
  for_packs<N>(a.width, [&](int slot, int column) {
    float w[N];
    load_weights(w, a.weight + column, a.weight_offset);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      out.v[j] = from_float<T>(v[slot][j] * inv * w[j]);
      if constexpr (kLargest) most = Larger{}(most, fabsf(to_float(out.v[j])));
    }
    store_pack<N>(a.y + std::int64_t{blockIdx.x} * a.y_step + column, out);
  });
  if constexpr (kLargest) {
    most = block_reduce(most, partials, Larger{}, 0.0f);
    if (threadIdx.x == 0) a.largest[blockIdx.x] = most;
  }
}

template <class T>
struct Backward {
  Target<T> dx;
  const T *dy, *x;
  const float *weight, *inv_rms;
  ColumnParts dweight;
  int rows, width;
  float weight_offset;
};

/// A thread takes S packs of a row. If there are few it keeps them in registers; more would spill with 1,024 threads,
/// so those are read twice. If dweight is wanted (kSums), block b takes rows b, b + blocks, ... and adds up its part of
/// dweight; otherwise it takes one row.
template <class T, int N, int S, bool kSums>
__global__ void __launch_bounds__(1024) rms_norm_rows_grad(Backward<T> a) {
  constexpr bool kKeeps = N > 1 && N * S <= kFewElements;
  struct Operands {
    Pack<T, N> dy, x;
  };
  auto& partials = shared_memory<BlockPartials<float>>();
  float dweight[S][N] = {};
  for (int row = static_cast<int>(blockIdx.x); row < a.rows; row += static_cast<int>(gridDim.x)) {
    const std::int64_t begin = std::int64_t{row} * a.width;
    const auto load = [&](int column) {
      return Operands{load_pack<N>(a.dy + begin + column), load_pack<N>(a.x + begin + column)};
    };
    [[maybe_unused]] Operands kept[kKeeps ? S : 1];
    const float inv = a.inv_rms[row];
    float dot = 0;
    for_packs<N, S>(a.width, [&](int slot, int column) {
      const Operands in = load(column);
      if constexpr (kKeeps) kept[slot] = in;
      float w[N];
      load_weights(w, a.weight + column, a.weight_offset);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float product = to_float(in.dy.v[j]) * to_float(in.x.v[j]);
        dot += product * w[j];
        if constexpr (kSums) dweight[slot][j] += product * inv;
      }
    });
    if (!a.dx.data) continue;
    const float pull = block_sum(dot, partials) / static_cast<float>(a.width) * inv * inv;
    for_packs<N, S>(a.width, [&](int slot, int column) {
      Operands in;
      if constexpr (kKeeps)
        in = kept[slot];
      else
        in = load(column);
      float w[N];
      load_weights(w, a.weight + column, a.weight_offset);
#pragma unroll
      for (int j = 0; j < N; ++j) w[j] = inv * (to_float(in.dy.v[j]) * w[j] - pull * to_float(in.x.v[j]));
      a.dx.template put_pack<N>(begin + column, w);
    });
  }
  if constexpr (kSums)
    for_packs<N, S>(a.width, [&](int slot, int column) {
      const Target<float> part{a.dweight.data};
      part.put_pack<N>(std::int64_t{blockIdx.x} * a.width + column, dweight[slot]);
    });
}

template <class T>
void forward(Ctx& ctx, const RmsNorm& a) {
  const std::int64_t C = a.x.shape[-1];
  const Forward<T> args{.y = a.y.as<T>(),
                        .inv_rms = a.inv_rms.as<float>(),
                        .x = a.x.as<T>(),
                        .weight = a.weight.as<float>(),
                        .width = static_cast<int>(C),
                        .eps = static_cast<float>(a.eps),
                        .weight_offset = added_to_weights(a.weight_offset),
                        .y_step = static_cast<int>(a.y_stride == 0 ? C : a.y_stride),
                        .largest = a.largest ? a.largest.as<float>() : nullptr};
  const auto run = [&]<int N>() {
    launch(ctx, "rms_norm", args.largest ? rms_norm_rows<T, N, true> : rms_norm_rows<T, N, false>,
           {static_cast<unsigned>(a.x.shape.rows()), row_threads<N>(C), sizeof(BlockPartials<float>)}, args);
  };
  dispatch_packs<T>(packable<T>(std::gcd(C, args.y_step), args.y, args.x, args.weight), run);
}

template <class T>
void backward(Ctx& ctx, const RmsNormGrad& a) {
  const std::int64_t C = a.x.shape[-1], rows = a.x.shape.rows();
  Backward<T> args{.dx = target_of<T>(a.dx),
                   .dy = a.dy.as<T>(),
                   .x = a.x.as<T>(),
                   .weight = a.weight.as<float>(),
                   .inv_rms = a.inv_rms.as<float>(),
                   .dweight = {},
                   .rows = static_cast<int>(rows),
                   .width = static_cast<int>(C),
                   .weight_offset = added_to_weights(a.weight_offset)};
  const bool sums = a.dweight.wanted();
  const auto run = [&]<int N>() {
    const unsigned threads = row_threads<N>(C);
    if (sums) args.dweight = column_parts(ctx, rows, {.width = C, .threads = threads});
    const Grid grid{static_cast<unsigned>(sums ? args.dweight.parts : rows), threads, sizeof(BlockPartials<float>)};
    dispatch_slots<N>(C, [&]<int S>() {
      launch(ctx, "rms_norm_grad", sums ? rms_norm_rows_grad<T, N, S, true> : rms_norm_rows_grad<T, N, S, false>, grid,
             args);
    });
  };
  dispatch_packs<T>(packable<T>(C, args.dx.data, args.dy, args.x, args.weight), run);
  if (sums) finish_column_parts(ctx, a.dweight, args.dweight);
}

}  // namespace

void run_cuda(Ctx& ctx, const RmsNorm& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() { forward<T>(ctx, a); });
}
void run_cuda(Ctx& ctx, const RmsNormGrad& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() { backward<T>(ctx, a); });
}

}  // namespace qtrain::ops
