#include "kernels/rank_rows.h"

#include "kernels/cuda/elements.cuh"

namespace qtrain::ops {
namespace {

/// Processes the elements of the first half of the rows; a row has `n` elements.
template <class T>
struct Reverser {
  T* x;
  std::int64_t rows, n;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / n, column = i % n, other = (rows - 1 - row) * n + column;
    const Pack<T, N> first = load_pack<N>(x + i), last = load_pack<N>(x + other);
    store_pack(x + i, last);
    store_pack(x + other, first);
  }
};

template <class T>
struct RowAdder {
  Target<T> y;
  const T* x;
  std::int64_t rows, n;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float sum[N], row[N];
    load_floats(sum, x + i);
#pragma unroll 1
    for (std::int64_t r = 1; r < rows; ++r) {
      load_floats(row, x + r * n + i);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += row[j];
    }
    y.template put_pack<N>(i, sum);
  }
};

}  // namespace

void run_cuda(Ctx& ctx, const ReverseRows& a) {
  const std::int64_t rows = a.x.shape[0], n = a.x.numel() / std::max<std::int64_t>(rows, 1);
  if (rows < 2 || n == 0) return;
  dispatch_storage(a.x.dtype, [&]<class T>() {
    const Reverser<T> body{a.x.as<T>(), rows, n};
    dispatch_packs<T>(packable<T>(n, body.x),
                      [&]<int N>() { launch_elements<N>(ctx, "reverse_rows", rows / 2 * n, body); });
  });
}

void run_cuda(Ctx& ctx, const AddRows& a) {
  const std::int64_t n = a.y.t.numel();
  if (n == 0) return;
  dispatch_storage(a.x.dtype, [&]<class T>() {
    const RowAdder<T> body{target_of<T>(a.y), a.x.as<T>(), a.x.shape[0], n};
    dispatch_packs<T>(packable<T>(n, body.x, body.y.data),
                      [&]<int N>() { launch_elements<N>(ctx, "add_rows", n, body); });
  });
}

}  // namespace qtrain::ops
