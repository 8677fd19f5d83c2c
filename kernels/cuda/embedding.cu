#include "kernels/embedding.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 128;

enum class Index : std::uint8_t { source, destination };

/// y[i] = scale * x[rows[i]], or y[rows[i]] = or += scale * x[i]; one block per row.
template <class To, class From, Index K>
__global__ void __launch_bounds__(kThreads)
    move_rows(Target<To> y, const From* x, const std::int32_t* rows, int width, float scale) {
  const std::int64_t i = blockIdx.x, row = rows[i];
  const std::int64_t to = (K == Index::source ? i : row) * width, from = (K == Index::source ? row : i) * width;
  if (K == Index::destination && row == kNoRow) return;
  for (int c = static_cast<int>(threadIdx.x); c < width; c += static_cast<int>(blockDim.x))
    y.put(to + c, row == kNoRow ? 0.0f : scale * to_float(x[from + c]));
}

/// Likewise in packs of 16 bytes.
template <class T, Index K>
__global__ void __launch_bounds__(kThreads)
    move_row_packs(Target<T> y, const T* x, const std::int32_t* rows, int width, float scale) {
  constexpr int N = kPackOf<T>;
  const std::int64_t i = blockIdx.x, row = rows[i];
  const std::int64_t to = (K == Index::source ? i : row) * width, from = (K == Index::source ? row : i) * width;
  if (K == Index::destination && row == kNoRow) return;
  for (int c = static_cast<int>(threadIdx.x) * N; c < width; c += static_cast<int>(blockDim.x) * N) {
    float v[N] = {};
    if (row != kNoRow) load_floats(v, x + from + c);
#pragma unroll
    for (float& value : v) value *= scale;
    y.template put_pack<N>(to + c, v);
  }
}

struct Rows {
  const char* name;
  ConstTensor x, rows;
  double scale = 1;
};

template <class To, class From, Index K>
void move(Ctx& ctx, const Sink& y, const Rows& a) {
  const Target<To> to = target_of<To>(y);
  const From* x = a.x.as<From>();
  const auto* rows = a.rows.as<std::int32_t>();
  const std::int64_t width = y.t.shape[-1];
  const auto scale = static_cast<float>(a.scale);
  const Grid grid{static_cast<unsigned>(a.rows.numel()), kThreads};
  if constexpr (std::is_same_v<To, From>)
    if (packable<To>(width, to.data, x) == Packs::yes)
      return launch(ctx, a.name, move_row_packs<To, K>, grid, to, x, rows, width, scale);
  launch(ctx, a.name, move_rows<To, From, K>, grid, to, x, rows, width, scale);
}

}  // namespace

void run_cuda(Ctx& ctx, const Embedding& a) {
  dispatch_storage(a.y.dtype, [&]<class To>() {
    dispatch_storage(a.table.dtype, [&]<class From>() {
      move<To, From, Index::source>(ctx, store(a.y),
                                    {.name = "embedding", .x = a.table, .rows = a.tokens, .scale = a.scale});
    });
  });
}

void run_cuda(Ctx& ctx, const GatherRows& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    move<T, T, Index::source>(ctx, store(a.y), {.name = "gather_rows", .x = a.x, .rows = a.rows});
  });
}

void run_cuda(Ctx& ctx, const ScatterRows& a) {
  if (!a.y.wanted()) return;
  if (!a.y.adds()) ctx.stream().fill(a.y.t.data, 0, a.y.t.bytes());
  dispatch_storage(a.y.t.dtype, [&]<class T>() {
    move<T, T, Index::destination>(ctx, a.y, {.name = "scatter_rows", .x = a.x, .rows = a.rows});
  });
}

}  // namespace qtrain::ops
