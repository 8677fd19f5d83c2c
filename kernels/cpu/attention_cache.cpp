#include <limits>

#include "kernels/attention.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/softcap.h"

namespace qtrain::ops {
namespace {

using simd::Acc;

/// A cache with contiguous rows, or with blocks and a table of each row's blocks.
struct Cache {
  std::int64_t pieces, capacity, Hkv, D;
  const std::int32_t* table = nullptr;
  std::int64_t rows = 0, width = 0;  ///< size of the table

  Cache(ConstTensor cache, ConstTensor blocks)
      : pieces(cache.shape[0]), capacity(cache.shape[1]), Hkv(cache.shape[2]), D(cache.shape[3]) {
    if (!blocks) return;
    table = blocks.as<std::int32_t>();
    rows = blocks.shape[0];
    width = blocks.shape[1];
  }

  /// Offset of the first head at position p of row r; within a block, positions are Hkv * D apart.
  std::int64_t at(std::int64_t r, std::int64_t p) const {
    check(r >= 0 && p >= 0 && (table ? r < rows && p < width * capacity : p < capacity), kOutside);
    const std::int64_t piece = table ? table[r * width + p / capacity] : r;
    check(piece >= 0 && piece < pieces, kOutside);
    return (piece * capacity + p % capacity) * Hkv * D;
  }
  /// Calls f(key, offset, count) for the positions [first, last] of a row, in contiguous runs; `key` is relative to
  /// `first`.
  template <class F>
  void each_run(std::int64_t row, std::int64_t first, std::int64_t last, const F& f) const {
    for (std::int64_t p = first, count; p <= last; p += count) {
      count = std::min(last + 1 - p, capacity - p % capacity);
      f(p - first, at(row, p), count);
    }
  }

  static constexpr const char* kOutside = "cached attention: a token is outside the cache";
};

/// scores = softmax(scale * scores) in place, including a sink if there is one.
template <class A>
void softmax(A* scores, std::int64_t n, A scale, const A* sink) {
  using simd::Vec;
  A max = sink ? *sink : -std::numeric_limits<A>::infinity();
  for (std::int64_t j = 0; j < n; ++j) max = std::max(max, scores[j] *= scale);
  Vec<A> sums{};
  simd::each<A>(n, [&](std::int64_t j, auto lanes) {
    const Vec<A> e = simd::exp(simd::load<A>(scores + j, lanes) - simd::broadcast(max));
    simd::store<A>(scores + j, e, lanes);
  });
  simd::each<A>(n, [&](std::int64_t j, auto lanes) { sums += simd::load<A>(scores + j, lanes); });
  const A factor = A{1} / (simd::sum(sums) + (sink ? std::exp(*sink - max) : A{0}));
  for (std::int64_t j = 0; j < n; ++j) scores[j] *= factor;
}

/// If there are fewer tasks than this, they are split into single heads so that threads get equal shares.
constexpr std::int64_t kFewTasks = 32;

/// The query heads of one key head of one token, which share each pass over the cache.
template <class T, class K>
struct Decode {
  using A = Acc<T>;
  const CachedAttention& a;
  Cache n;
  std::int64_t Hq;

  /// The first query head, and the number of heads.
  struct Heads {
    std::int64_t first, count;
  };

  void run(std::int64_t t, const Heads& heads, std::span<std::byte> scratch) const {
    const std::int64_t row = a.rows.as<std::int32_t>()[t], last = a.positions.as<std::int32_t>()[t];
    const std::int64_t first = a.window > 0 ? std::max<std::int64_t>(0, last - a.window + 1) : 0,
                       keys = last + 1 - first;
    const std::int64_t group = heads.count, g = heads.first / (Hq / n.Hkv), step = n.Hkv * n.D;
    check(static_cast<std::size_t>(group * (keys + n.D)) * sizeof(A) <= scratch.size(),
          "cached attention: the context exceeds the workspace");
    A *scores = reinterpret_cast<A*>(scratch.data()), *sums = scores + group * keys;
    const T* q = a.q.as<T>() + (t * Hq + heads.first) * n.D;
    const K *key_head = a.keys.as<K>() + g * n.D, *value_head = a.values.as<K>() + g * n.D;
    n.each_run(row, first, last, [&](std::int64_t begin, std::int64_t at, std::int64_t count) {
      const K* key = key_head + at;
      for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t h = 0; h < group; ++h)
          scores[h * keys + begin + j] = simd::dot<A>(q + h * n.D, key + j * step, n.D);
    });
    if (a.softcap > 0) simd::tanh_of(scores, group * keys, static_cast<A>(a.scale / a.softcap));
    const A score_scale = static_cast<A>(a.softcap > 0 ? a.softcap : a.scale);
    const A* sinks = a.sinks ? a.sinks.as<A>() + heads.first : nullptr;
    for (std::int64_t h = 0; h < group; ++h) softmax(scores + h * keys, keys, score_scale, sinks ? sinks + h : nullptr);
    std::fill_n(sums, group * n.D, A{});
    n.each_run(row, first, last, [&](std::int64_t begin, std::int64_t at, std::int64_t count) {
      const K* value = value_head + at;
      for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t h = 0; h < group; ++h)
          simd::axpy<A>(sums + h * n.D, scores[h * keys + begin + j], value + j * step, n.D);
    });
    T* y = a.y.as<T>() + (t * Hq + heads.first) * n.D;
    simd::each<A>(group * n.D,
                  [&](std::int64_t d, auto lanes) { simd::store<A>(y + d, simd::load<A>(sums + d, lanes), lanes); });
  }
};

template <class C, class T>
void append(Ctx& ctx, const CacheAppend& a) {
  using A = Acc<T>;
  const Cache n(a.cache, a.blocks);
  const std::int64_t width = n.Hkv * n.D;
  C* cache = a.cache.as<C>();
  const T* x = a.x.as<T>();
  const std::int32_t *rows = a.rows.as<std::int32_t>(), *positions = a.positions.as<std::int32_t>();
  for_rows(ctx, a.x.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      C* to = cache + n.at(rows[t], positions[t]);
      simd::each<A>(width, [&](std::int64_t i, auto lanes) {
        simd::store<A>(to + i, simd::load<A>(x + t * width + i, lanes), lanes);
      });
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const CachedAttention& a) {
  dispatch_float(a.q.dtype, [&]<class T>() {
    dispatch_float(a.keys.dtype, [&]<class K>() {
      const Decode<T, K> decode{a, Cache(a.keys, a.blocks), a.q.shape[1]};
      const std::int64_t rows = a.q.shape[0], group = decode.Hq / decode.n.Hkv;
      const std::int64_t heads = rows * decode.n.Hkv < kFewTasks ? 1 : group, tasks = decode.Hq / heads;
      ctx.pool().run(rows * tasks, [&](std::int64_t task, int worker) {
        decode.run(task / tasks, {task % tasks * heads, heads}, ctx.workspace(worker));
      });
    });
  });
}
void run_cpu(Ctx& ctx, const CacheAppend& a) {
  dispatch_float(a.cache.dtype,
                 [&]<class C>() { dispatch_float(a.x.dtype, [&]<class T>() { append<C, T>(ctx, a); }); });
}

}  // namespace qtrain::ops
