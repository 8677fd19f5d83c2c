#include "kernels/cuda/attention.cuh"

/// Attention of single tokens against a key/value cache, for generation.
namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 128;

/// Locates the tokens of a row: contiguous, or in blocks listed in a table.
struct Places {
  const std::int32_t* blocks;  ///< null if rows are contiguous
  int capacity, width;         ///< tokens per row or block; blocks per row of the table

  __device__ std::int64_t at(int row, int position) const {
    const int piece = blocks ? blocks[std::int64_t{row} * width + position / capacity] : row;
    return std::int64_t{piece} * capacity + (blocks ? position % capacity : position);
  }
};
Places places_of(ConstTensor cache, ConstTensor blocks) {
  return {.blocks = blocks ? blocks.as<std::int32_t>() : nullptr,
          .capacity = static_cast<int>(cache.shape[1]),
          .width = blocks ? static_cast<int>(blocks.shape[1]) : 0};
}

template <class T>
struct Args {
  T* y;
  const T *q, *keys, *values;
  const std::int32_t *rows, *positions;
  Places places;
  int heads, groups, width, window;  ///< groups: heads of the cache; width: elements per head
  float scale, softcap, inverse_cap;
  const float* sinks;  ///< null without sinks
};

struct Shared {
  float q[kMaxHead], scores[kThreads];
  std::int64_t places[kThreads];
  BlockPartials<float> partials;
};

/// One block per token and head: computes the scores of kThreads keys at a time; then thread d adds up element d of the
/// values.
template <class T, Scores S>
__global__ void __launch_bounds__(kThreads) cached_attention_head(Args<T> a) {
  Shared& s = shared_memory<Shared>();
  const int t = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x);
  const int last = a.positions[t], begin = a.window > 0 ? max(0, last + 1 - a.window) : 0;
  const std::int64_t stride = std::int64_t{a.groups} * a.width;
  const int row = a.rows[t], group = head / (a.heads / a.groups) * a.width;
  const std::int64_t query = (std::int64_t{t} * a.heads + head) * a.width;
  for (int d = lane; d < a.width; d += static_cast<int>(kThreads)) s.q[d] = to_float(a.q[query + d]) * a.scale;
  __syncthreads();
  float max = -INFINITY, sum = 0, out[kMaxHead / kThreads] = {};
  for (int j0 = begin; j0 <= last; j0 += static_cast<int>(kThreads)) {
    float score = -INFINITY;
    if (j0 + lane <= last) {
      const std::int64_t place = a.places.at(row, j0 + lane) * stride + group;
      s.places[lane] = place;
      const T* k = a.keys + place;
      score = 0;
      for (int d = 0; d < a.width; ++d) score += s.q[d] * to_float(k[d]);
      if constexpr (S == Scores::capped) score = a.softcap * tanhf(score * a.inverse_cap);
    }
    const float larger = Larger{}(max, block_reduce(score, s.partials, Larger{}, -INFINITY));
    const float p = expf(score - larger), fade = expf(max - larger);
    s.scores[lane] = p;
    sum = sum * fade + block_sum(p, s.partials);  // ends with a barrier
    max = larger;
    const int count = min(static_cast<int>(kThreads), last + 1 - j0);
#pragma unroll
    for (int k = 0; k < kMaxHead / static_cast<int>(kThreads); ++k) {
      const int d = lane + k * static_cast<int>(kThreads);
      if (d >= a.width) continue;
      out[k] *= fade;
      for (int j = 0; j < count; ++j) out[k] += s.scores[j] * to_float(a.values[s.places[j] + d]);
    }
    __syncthreads();
  }
  RowEnd end{max, sum};
  if (a.sinks) end.add_sink(a.sinks[head]);
#pragma unroll
  for (int k = 0; k < kMaxHead / static_cast<int>(kThreads); ++k) {
    const int d = lane + k * static_cast<int>(kThreads);
    if (d < a.width) a.y[query + d] = from_float<T>(out[k] * end.factor / end.sum);
  }
}

template <class T>
struct Append {
  T* cache;
  const T* x;
  const std::int32_t *rows, *positions;
  Places places;
  int width;  ///< elements of all heads of a token

  template <int N>
  __device__ void at(std::int64_t i) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const std::int64_t t = (i + j) / width, c = (i + j) % width;
      cache[places.at(rows[t], positions[t]) * width + c] = x[i + j];
    }
  }
};

}  // namespace

void run_cuda(Ctx& ctx, const CachedAttention& a) {
  check(a.q.shape[2] <= kMaxHead, "cached_attention: a head of more than 256 elements");
  dispatch_storage(a.q.dtype, [&]<class T>() {
    const Args<T> args{.y = a.y.as<T>(),
                       .q = a.q.as<T>(),
                       .keys = a.keys.as<T>(),
                       .values = a.values.as<T>(),
                       .rows = a.rows.as<std::int32_t>(),
                       .positions = a.positions.as<std::int32_t>(),
                       .places = places_of(a.keys, a.blocks),
                       .heads = static_cast<int>(a.q.shape[1]),
                       .groups = static_cast<int>(a.keys.shape[2]),
                       .width = static_cast<int>(a.q.shape[2]),
                       .window = static_cast<int>(a.window),
                       .scale = static_cast<float>(a.scale),
                       .softcap = static_cast<float>(a.softcap),
                       .inverse_cap = static_cast<float>(a.softcap > 0 ? 1 / a.softcap : 0),
                       .sinks = sinks_of(a.sinks)};
    const dim3 blocks(static_cast<unsigned>(a.q.shape[0]), static_cast<unsigned>(a.q.shape[1]));
    dispatch_scores(a.softcap, [&]<Scores S>() {
      launch(ctx, "cached_attention", cached_attention_head<T, S>, {blocks, kThreads, sizeof(Shared)}, args);
    });
  });
}

void run_cuda(Ctx& ctx, const CacheAppend& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() {
    const Append<T> body{.cache = a.cache.as<T>(),
                         .x = a.x.as<T>(),
                         .rows = a.rows.as<std::int32_t>(),
                         .positions = a.positions.as<std::int32_t>(),
                         .places = places_of(a.cache, a.blocks),
                         .width = static_cast<int>(a.x.shape[1] * a.x.shape[2])};
    launch_elements<4>(ctx, "cache_append", a.x.numel(), body);
  });
}

}  // namespace qtrain::ops
