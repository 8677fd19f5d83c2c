#include "kernels/rope.h"

#include "kernels/cuda/column_parts.cuh"
#include "kernels/cuda/norm_weight.cuh"
#include "kernels/cuda/reduce.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kWarps = 4;
constexpr int kPairs = 8;  ///< maximum pairs of elements per lane: heads of up to 512 elements

struct Angles {
  const float *cos, *sin;
  const std::int32_t* positions;
};

template <class Op>
Angles angles_of(const Op& a) {
  return {a.cos.template as<float>(), a.sin.template as<float>(), a.positions.template as<std::int32_t>()};
}

/// One head of one token per warp: lane l holds elements l + 32 s and their partners half a head away.
struct HeadRow {
  int half, lane;

  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (int s = 0; s < kPairs; ++s)
      if (lane + kWarp * s < half) f(s, lane + kWarp * s);
  }
};

template <class T>
struct Forward {
  T* y;
  float* inv_rms;
  const T* x;
  const float* weight;  ///< null: no norm
  Angles angles;
  std::int64_t rows;
  int heads, half;
  float eps, weight_offset;

  __device__ __forceinline__ float weight_of(int i) const { return weight[i] + weight_offset; }
};

template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) rope_rows(Forward<T> a) {
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (r >= a.rows) return;
  const HeadRow row{a.half, static_cast<int>(threadIdx.x % kWarp)};
  const T* x = a.x + r * 2 * a.half;
  T* y = a.y + r * 2 * a.half;
  float u[kPairs] = {}, v[kPairs] = {}, squares = 0;
  row.each([&](int s, int i) {
    u[s] = to_float(x[i]);
    v[s] = to_float(x[a.half + i]);
    squares += u[s] * u[s] + v[s] * v[s];
  });
  if (a.weight) {
    const float inv = rsqrtf(warp_sum(squares) / static_cast<float>(2 * a.half) + a.eps);
    if (row.lane == 0) a.inv_rms[r] = inv;
    row.each([&](int s, int i) {
      u[s] *= inv * a.weight_of(i);
      v[s] *= inv * a.weight_of(a.half + i);
    });
  }
  const std::int64_t table = std::int64_t{a.angles.positions[r / a.heads]} * a.half;
  row.each([&](int s, int i) {
    const float c = a.angles.cos[table + i], sn = a.angles.sin[table + i];
    y[i] = from_float<T>(u[s] * c - v[s] * sn);
    y[a.half + i] = from_float<T>(v[s] * c + u[s] * sn);
  });
}

template <class T>
struct Backward {
  Target<T> dx;
  const T *dy, *x;
  const float *weight, *inv_rms;  ///< null: no norm
  Angles angles;
  ColumnParts dweight;  ///< of width 2 half; null data: not wanted
  std::int64_t rows;
  int heads, half;
  float weight_offset;

  __device__ __forceinline__ float weight_of(int i) const { return weight[i] + weight_offset; }
};

/// Rotates dy back, for the elements of the lane.
template <class T>
__device__ __forceinline__ void rotate_back(const Backward<T>& a, const HeadRow& row, std::int64_t r,
                                            float (&u)[kPairs], float (&v)[kPairs]) {
  const T* dy = a.dy + r * 2 * a.half;
  const std::int64_t table = std::int64_t{a.angles.positions[r / a.heads]} * a.half;
  row.each([&](int s, int i) {
    const float c = a.angles.cos[table + i], sn = a.angles.sin[table + i];
    const float g1 = to_float(dy[i]), g2 = to_float(dy[a.half + i]);
    u[s] = g1 * c + g2 * sn;
    v[s] = g2 * c - g1 * sn;
  });
}

template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) rope_rows_grad(Backward<T> a) {
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (r >= a.rows) return;
  const HeadRow row{a.half, static_cast<int>(threadIdx.x % kWarp)};
  float u[kPairs], v[kPairs];
  rotate_back(a, row, r, u, v);
  row.each([&](int s, int i) {
    a.dx.put(r * 2 * a.half + i, u[s]);
    a.dx.put(r * 2 * a.half + a.half + i, v[s]);
  });
}

struct WarpSums {
  float v[kWarps][2 * kPairs * kWarp];
};

/// With a norm: block b processes rows 4 b, ..., 4 b + 3 of each stride, and sums its warps' parts of dweight.
template <class T>
// Limited to 5 resident blocks: for more, the compiler would spill registers.
__global__ void __launch_bounds__(kWarps* kWarp, 5) normed_rope_rows_grad(Backward<T> a) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, width = 2 * a.half;
  const HeadRow row{a.half, static_cast<int>(threadIdx.x % kWarp)};
  float du[kPairs] = {}, dv[kPairs] = {};
  for (std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp; r < a.rows; r += std::int64_t{gridDim.x} * kWarps) {
    float u[kPairs], v[kPairs];
    rotate_back(a, row, r, u, v);
    const T* x = a.x + r * width;
    const float inv = a.inv_rms[r];
    float dot = 0;
    row.each([&](int s, int i) {
      const float x1 = to_float(x[i]), x2 = to_float(x[a.half + i]);
      du[s] += u[s] * x1 * inv;
      dv[s] += v[s] * x2 * inv;
      dot += u[s] * a.weight_of(i) * x1 + v[s] * a.weight_of(a.half + i) * x2;
    });
    if (!a.dx.data) continue;
    const float pull = warp_sum(dot) / static_cast<float>(width) * inv * inv;
    row.each([&](int s, int i) {
      a.dx.put(r * width + i, inv * (u[s] * a.weight_of(i) - pull * to_float(x[i])));
      a.dx.put(r * width + a.half + i, inv * (v[s] * a.weight_of(a.half + i) - pull * to_float(x[a.half + i])));
    });
  }
  if (!a.dweight.data) return;
  WarpSums& sums = shared_memory<WarpSums>();
  row.each([&](int s, int i) {
    sums.v[warp][i] = du[s];
    sums.v[warp][a.half + i] = dv[s];
  });
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (unsigned w = 0; w < kWarps; ++w) sum += sums.v[w][i];
    a.dweight.data[std::int64_t{blockIdx.x} * width + i] = sum;
  }
}

unsigned blocks_for(std::int64_t rows) {
  return static_cast<unsigned>(ceil_div(rows, std::int64_t{kWarps}));
}

template <class T>
void forward(Ctx& ctx, const Rope& a) {
  check(a.x.shape[2] <= 2 * kPairs * kWarp, "rope: a head of more than 512 elements");
  const Forward<T> args{.y = a.y.as<T>(),
                        .inv_rms = a.weight ? a.inv_rms.as<float>() : nullptr,
                        .x = a.x.as<T>(),
                        .weight = a.weight ? a.weight.as<float>() : nullptr,
                        .angles = angles_of(a),
                        .rows = a.x.shape[0] * a.x.shape[1],
                        .heads = static_cast<int>(a.x.shape[1]),
                        .half = static_cast<int>(a.x.shape[2] / 2),
                        .eps = static_cast<float>(a.eps),
                        .weight_offset = added_to_weights(a.weight_offset)};
  launch(ctx, "rope", rope_rows<T>, {blocks_for(args.rows), kWarps * kWarp}, args);
}

template <class T>
void backward(Ctx& ctx, const RopeGrad& a) {
  if (!a.weight && !a.dx.wanted()) return;
  const std::int64_t rows = a.dy.shape[0] * a.dy.shape[1], D = a.dy.shape[2];
  check(D <= 2 * kPairs * kWarp, "rope: a head of more than 512 elements");
  Backward<T> args{.dx = target_of<T>(a.dx),
                   .dy = a.dy.as<T>(),
                   .x = nullptr,
                   .weight = nullptr,
                   .inv_rms = nullptr,
                   .angles = angles_of(a),
                   .dweight = {},
                   .rows = rows,
                   .heads = static_cast<int>(a.dy.shape[1]),
                   .half = static_cast<int>(D / 2),
                   .weight_offset = added_to_weights(a.weight_offset)};
  if (!a.weight) return launch(ctx, "rope_grad", rope_rows_grad<T>, {blocks_for(rows), kWarps * kWarp}, args);
  args.x = a.x.as<T>();
  args.weight = a.weight.as<float>();
  args.inv_rms = a.inv_rms.as<float>();
  const ColumnParts parts = column_parts(ctx, ceil_div(rows, std::int64_t{kWarps}), D);
  if (a.dweight.wanted()) args.dweight = parts;
  launch(ctx, "normed_rope_grad", normed_rope_rows_grad<T>,
         {static_cast<unsigned>(parts.parts), kWarps * kWarp, sizeof(WarpSums)}, args);
  if (a.dweight.wanted()) finish_column_parts(ctx, a.dweight, parts);
}

}  // namespace

void run_cuda(Ctx& ctx, const Rope& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() { forward<T>(ctx, a); });
}
void run_cuda(Ctx& ctx, const RopeGrad& a) {
  dispatch_storage(a.dy.dtype, [&]<class T>() { backward<T>(ctx, a); });
}

}  // namespace qtrain::ops
