#include "kernels/magnitude.h"

#include "kernels/cuda/column_parts.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 256;
/// Rows of W per block, which share the block's reads of A.
constexpr int kRows = 8;

__device__ __forceinline__ float relative_to(float value, float norm) {
  return norm > 0 ? value / norm : 0.0f;
}

template <class W>
struct NormInput {
  float* norm;
  const W* w;
  const float *a, *b;
  float scale;
  int out, in, ranks;
};

/// Block x: rows kRows * x, ...; a thread takes columns threadIdx, threadIdx + kThreads, ...
template <class W>
__global__ void __launch_bounds__(kThreads) norms_of_rows(NormInput<W> n) {
  auto& partials = shared_memory<BlockPartials<float>>();
  const int first = static_cast<int>(blockIdx.x) * kRows, rows = min(kRows, n.out - first);
  const W* w = n.w + std::int64_t{first} * n.in;
  const float* b = n.b + std::int64_t{first} * n.ranks;
  float squares[kRows] = {};
  for (int column = static_cast<int>(threadIdx.x); column < n.in; column += static_cast<int>(kThreads)) {
    float added[kRows] = {};
    for (int r = 0; r < n.ranks; ++r) {
      const float a = n.a[std::int64_t{r} * n.in + column];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (i < rows) added[i] += b[std::int64_t{i} * n.ranks + r] * a;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i >= rows) continue;
      const float v = to_float(w[std::int64_t{i} * n.in + column]) + n.scale * added[i];
      squares[i] += v * v;
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float sum = block_sum(squares[i], partials);
    if (threadIdx.x == 0 && i < rows) n.norm[first + i] = sqrtf(sum);
  }
}

template <class Y, class X>
struct Scaler {
  Target<Y> y;
  const X* x;
  const float *magnitude, *norm, *bias;  ///< bias may be null
  float shift;
  int width;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const int column = static_cast<int>(i % width);
    float v[N];
    load_floats(v, x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v[j] *= relative_to(magnitude[column + j], norm[column + j]) + shift;
      if (bias) v[j] += bias[column + j];
    }
    y.template put_pack<N>(i, v);
  }
};

template <class Y, class X>
void scale(Ctx& ctx, const ScaleToMagnitude& s) {
  const std::int64_t width = s.x.shape[-1];
  const Scaler<Y, X> body{.y = target_of<Y>(s.y),
                          .x = s.x.as<X>(),
                          .magnitude = s.magnitude.as<float>(),
                          .norm = s.norm.as<float>(),
                          .bias = s.bias ? s.bias.as<float>() : nullptr,
                          .shift = static_cast<float>(s.shift),
                          .width = static_cast<int>(width)};
  using Wider = std::conditional_t<(sizeof(Y) > sizeof(X)), Y, X>;
  dispatch_packs<Wider>(packable<Wider>(width, body.y.data, body.x),
                        [&]<int N>() { launch_elements<N>(ctx, "scale_to_magnitude", s.x.numel(), body); });
}

/// Block (x, p): columns of dy * v / norm, rows p, p + parts, ...
template <class T, class V>
__global__ void __launch_bounds__(kThreads)
    magnitude_grad_parts(ColumnParts out, const T* dy, const V* v, const float* norm, std::int64_t rows) {
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= out.width) return;
  float sum = 0;
  for (std::int64_t r = blockIdx.y; r < rows; r += gridDim.y)
    sum += to_float(dy[r * out.width + column]) * to_float(v[r * out.width + column]);
  out.data[blockIdx.y * std::int64_t{out.width} + column] = relative_to(sum, norm[column]);
}

}  // namespace

void run_cuda(Ctx& ctx, const RowNorms& n) {
  const auto out = static_cast<int>(n.w.shape[0]);
  dispatch_storage(n.w.dtype, [&]<class W>() {
    const NormInput<W> input{.norm = n.norm.as<float>(),
                             .w = n.w.as<W>(),
                             .a = n.a.as<float>(),
                             .b = n.b.as<float>(),
                             .scale = static_cast<float>(n.scale),
                             .out = out,
                             .in = static_cast<int>(n.w.shape[1]),
                             .ranks = static_cast<int>(n.a.shape[0])};
    launch(ctx, "row_norms", norms_of_rows<W>,
           {static_cast<unsigned>(ceil_div(out, kRows)), kThreads, sizeof(BlockPartials<float>)}, input);
  });
}

void run_cuda(Ctx& ctx, const ScaleToMagnitude& s) {
  dispatch_storage(s.y.t.dtype,
                   [&]<class Y>() { dispatch_storage(s.x.dtype, [&]<class X>() { scale<Y, X>(ctx, s); }); });
}

void run_cuda(Ctx& ctx, const MagnitudeGrad& g) {
  const std::int64_t rows = g.dy.shape.rows();
  const ColumnParts parts = column_parts(ctx, rows, part_of_columns(g.dy.shape[-1], kThreads));
  const dim3 blocks(ceil_div(static_cast<unsigned>(parts.width), kThreads), static_cast<unsigned>(parts.parts));
  dispatch_storage(g.dy.dtype, [&]<class T>() {
    dispatch_storage(g.v.dtype, [&]<class V>() {
      launch(ctx, "magnitude_grad", magnitude_grad_parts<T, V>, {blocks, kThreads}, parts, g.dy.as<T>(), g.v.as<V>(),
             g.norm.as<float>(), rows);
    });
  });
  finish_column_parts(ctx, g.dmagnitude, parts);
}

}  // namespace qtrain::ops
