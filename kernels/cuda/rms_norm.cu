#include "kernels/rms_norm.h"

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
};

/// One block per row.
template <class T, int N>
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
  for_packs<N>(a.width, [&](int slot, int column) {
    float w[N];
    load_weights(w, a.weight + column, a.weight_offset);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.v[j] = from_float<T>(v[slot][j] * inv * w[j]);
    store_pack<N>(a.y + begin + column, out);
  });
}

template <class T>
struct Backward {
  Target<T> dx;
  const T *dy, *x;
  const float *weight, *inv_rms;
  ColumnParts dweight;  ///< null data: not wanted
  int rows;
  float weight_offset;
};

/// Block b processes rows b, b + blocks, ... and accumulates its part of dweight in registers.
template <class T, int N>
__global__ void __launch_bounds__(1024) rms_norm_rows_grad(Backward<T> a) {
  auto& partials = shared_memory<BlockPartials<float>>();
  const int width = a.dweight.width;
  float dweight[kSlots<N>][N] = {};
  for (int row = static_cast<int>(blockIdx.x); row < a.rows; row += static_cast<int>(gridDim.x)) {
    const std::int64_t begin = std::int64_t{row} * width;
    const float inv = a.inv_rms[row];
    float dot = 0;
    for_packs<N>(width, [&](int slot, int column) {
      float g[N], x[N], w[N];
      load_floats(g, a.dy + begin + column);
      load_floats(x, a.x + begin + column);
      load_weights(w, a.weight + column, a.weight_offset);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        dot += g[j] * w[j] * x[j];
        dweight[slot][j] += g[j] * x[j] * inv;
      }
    });
    const float pull = block_sum(dot, partials) / static_cast<float>(width) * inv * inv;
    if (!a.dx.data) continue;
    for_packs<N>(width, [&](int, int column) {
      float g[N], x[N], w[N];
      load_floats(g, a.dy + begin + column);
      load_floats(x, a.x + begin + column);
      load_weights(w, a.weight + column, a.weight_offset);
#pragma unroll
      for (int j = 0; j < N; ++j) g[j] = inv * (g[j] * w[j] - pull * x[j]);
      a.dx.template put_pack<N>(begin + column, g);
    });
  }
  if (!a.dweight.data) return;
  for_packs<N>(width, [&](int slot, int column) {
    const Target<float> part{a.dweight.data};
    part.put_pack<N>(std::int64_t{blockIdx.x} * width + column, dweight[slot]);
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
                        .weight_offset = added_to_weights(a.weight_offset)};
  const auto run = [&]<int N>() {
    launch(ctx, "rms_norm", rms_norm_rows<T, N>,
           {static_cast<unsigned>(a.x.shape.rows()), row_threads<N>(C), sizeof(BlockPartials<float>)}, args);
  };
  dispatch_packs<T>(packable<T>(C, args.y, args.x, args.weight), run);
}

template <class T>
void backward(Ctx& ctx, const RmsNormGrad& a) {
  const std::int64_t C = a.x.shape[-1], rows = a.x.shape.rows();
  ColumnParts parts = column_parts(ctx, rows, C);
  const int blocks = parts.parts;
  if (!a.dweight.wanted()) parts.data = nullptr;
  const Backward<T> args{.dx = target_of<T>(a.dx),
                         .dy = a.dy.as<T>(),
                         .x = a.x.as<T>(),
                         .weight = a.weight.as<float>(),
                         .inv_rms = a.inv_rms.as<float>(),
                         .dweight = parts,
                         .rows = static_cast<int>(rows),
                         .weight_offset = added_to_weights(a.weight_offset)};
  const auto run = [&]<int N>() {
    launch(ctx, "rms_norm_grad", rms_norm_rows_grad<T, N>,
           {static_cast<unsigned>(blocks), row_threads<N>(C), sizeof(BlockPartials<float>)}, args);
  };
  dispatch_packs<T>(packable<T>(C, args.dx.data, args.dy, args.x, args.weight), run);
  if (a.dweight.wanted()) finish_column_parts(ctx, a.dweight, parts);
}

}  // namespace

void run_cuda(Ctx& ctx, const RmsNorm& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() { forward<T>(ctx, a); });
}
void run_cuda(Ctx& ctx, const RmsNormGrad& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() { backward<T>(ctx, a); });
}

}  // namespace qtrain::ops
