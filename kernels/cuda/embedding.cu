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

struct Matches {
  std::uint32_t votes[kThreads / kWarp];
};

/// Block t sums the gradients of token t's row, unless an earlier token is the same one; then it exits. Each thread
/// owns columns, and adds the rows of dy in token order.
template <class W, class T>
__global__ void __launch_bounds__(kThreads)
    embedding_rows_grad(Target<W> table, const T* dy, const std::int32_t* tokens, int count, int width,
                        std::int64_t padding, float scale) {
  constexpr int kColumns = 8;  ///< columns per thread at a time
  Matches& matches = shared_memory<Matches>();
  const int first = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  const std::int32_t token = tokens[first];
  if (token == padding) return;
  int earlier = 0;
  for (int t = lane; t < first; t += kThreads) earlier |= tokens[t] == token;
  if (__syncthreads_or(earlier)) return;
  for (int base = 0; base < width; base += static_cast<int>(kThreads) * kColumns) {
    float sums[kColumns] = {};
    for (int begin = first; begin < count; begin += static_cast<int>(kThreads)) {
      const bool match = begin + lane < count && tokens[begin + lane] == token;
      const std::uint32_t vote = __ballot_sync(kAllLanes, match);
      if (lane % kWarp == 0) matches.votes[lane / kWarp] = vote;
      __syncthreads();
      for (int w = 0; w < static_cast<int>(kThreads) / kWarp; ++w)
        for (std::uint32_t rest = matches.votes[w]; rest; rest &= rest - 1) {
          const T* row = dy + std::int64_t{begin + w * kWarp + __ffs(static_cast<int>(rest)) - 1} * width;
#pragma unroll
          for (int k = 0; k < kColumns; ++k) {
            const int c = base + k * static_cast<int>(kThreads) + lane;
            if (c < width) sums[k] += to_float(row[c]);
          }
        }
      __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      const int c = base + k * static_cast<int>(kThreads) + lane;
      if (c < width) table.put(std::int64_t{token} * width + c, scale * sums[k]);
    }
  }
}

void clear_unless_adding(Ctx& ctx, const Sink& y) {
  if (!y.adds()) ctx.stream().fill(y.t.data, 0, y.t.bytes());
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

void run_cuda(Ctx& ctx, const EmbeddingGrad& a) {
  clear_unless_adding(ctx, a.dtable);
  dispatch_storage(a.dtable.t.dtype, [&]<class W>() {
    dispatch_storage(a.dy.dtype, [&]<class T>() {
      launch(ctx, "embedding_grad", embedding_rows_grad<W, T>,
             {static_cast<unsigned>(a.tokens.numel()), kThreads, sizeof(Matches)}, target_of<W>(a.dtable), a.dy.as<T>(),
             a.tokens.as<std::int32_t>(), a.tokens.numel(), a.dy.shape[-1], a.padding, static_cast<float>(a.scale));
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
  clear_unless_adding(ctx, a.y);
  dispatch_storage(a.y.t.dtype, [&]<class T>() {
    move<T, T, Index::destination>(ctx, a.y, {.name = "scatter_rows", .x = a.x, .rows = a.rows});
  });
}

}  // namespace qtrain::ops
