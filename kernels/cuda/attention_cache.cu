#include <algorithm>
#include <bit>

#include "kernels/cuda/attention.cuh"

/// Attention of single tokens against a key/value cache, for generation.
namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 128;
constexpr int kWarps = static_cast<int>(kThreads) / kWarp;
constexpr int kSection = 256;     ///< keys whose weighted sum is a partial result
constexpr int kLaneElements = 8;  ///< elements of a head per lane: heads of up to 256 elements

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
  int first_token;     ///< of this launch
  int lane_bits;       ///< log2 of the lanes that share a key
  int splits;          ///< sections per row in `parts`
  float* parts;  ///< [tokens of the launch, heads, splits, width + 2]; null: a block takes all sections of its row

  __device__ int token() const { return first_token + static_cast<int>(blockIdx.x); }
  /// The keys that a token sees.
  __device__ TokenSpan keys_of(int t) const {
    const int end = positions[t] + 1;
    return {window > 0 ? max(0, end - window) : 0, end};
  }
  __device__ float* part(int head, int section) const {
    return parts + ((std::int64_t{blockIdx.x} * heads + head) * splits + section) * (width + 2);
  }
};

/// The softmax-weighted sum of values over some keys: (max, sum, weighted values) as in RowEnd, before the division.
struct Softmax {
  float max = -INFINITY, sum = 0;

  /// The factors by which this and `other` are scaled when they are added up.
  struct Factors {
    float mine, others;

    /// An explicit FMA: compilers would contract this in one place or the other.
    __device__ __forceinline__ float sum(float a, float b) const { return fmaf(mine, a, others * b); }
  };
  __device__ __forceinline__ Factors add(const Softmax& other) {
    const float larger = Larger{}(max, other.max);
    const auto factor = [&](float m) { return m == -INFINITY ? 0.0f : expf(m - larger); };
    const Factors f{factor(max), factor(other.max)};
    *this = {larger, f.sum(sum, other.sum)};
    return f;
  }
};

/// A group of lanes (a power of two) shares a key: each lane holds 8 elements, in packs of N. It keeps Q queries that
/// read the same keys, so that keys and values are loaded once for them.
template <int N, int Q>
struct LaneState {
  static constexpr int kSlots = kLaneElements / N, kKeys = N == 1             ? 1
                                                           : N == 8 && Q == 1 ? 4
                                                                              : 2;  ///< keys in flight per group
  float q[Q][kSlots][N], out[Q][kSlots][N] = {};
  Softmax softmax[Q];
  int lane, lanes, width;

  __device__ __forceinline__ LaneState(int lane_bits, int width)
      : lane(static_cast<int>(threadIdx.x) & ((1 << lane_bits) - 1)), lanes(1 << lane_bits), width(width) {}

  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
      if (const int i = (lane + s * lanes) * N; i < width) f(s, i);
  }
  /// The sum over the lanes of the group. All lanes of the warp must call it.
  __device__ __forceinline__ float sum(float v) const {
    for (int bit = lanes / 2; bit > 0; bit /= 2) v += from_lane_across(v, bit);
    return v;
  }
};

/// Weighted sums of values, and their softmax.
template <int Q>
struct alignas(16) Sums {
  float out[Q][kMaxHead];
  Softmax softmax[Q];
};

/// An element of the sum over sections.
struct Total {
  Softmax softmax;
  float out = 0;
};

template <int Q>
struct Shared {
  Sums<Q> warps[kWarps];
  Total total[Q][kMaxHead];
};

/// Adds the keys [begin, end) of a row to the state of the calling lane.
template <class T, Scores S, int N, int Q>
__device__ __forceinline__ void add_keys(const Args<T>& a, LaneState<N, Q>& state, int row, int group, TokenSpan keys) {
  constexpr int kKeys = LaneState<N, Q>::kKeys, kSlots = LaneState<N, Q>::kSlots;
  const int slot = static_cast<int>(threadIdx.x) >> a.lane_bits, slots = static_cast<int>(kThreads) >> a.lane_bits;
#pragma unroll 1
  for (int j0 = keys.begin; j0 < keys.end; j0 += slots * kKeys) {
    Pack<T, N> k[kKeys][kSlots], v[kKeys][kSlots];
    bool present[kKeys];
#pragma unroll
    for (int u = 0; u < kKeys; ++u) {
      const int j = j0 + u * slots + slot;
      present[u] = j < keys.end;
      if (!present[u]) continue;
      const std::int64_t place = (a.places.at(row, j) * a.groups + group) * a.width;
      state.each([&](int s, int i) {
        k[u][s] = load_pack<N>(a.keys + place + i);
        v[u][s] = load_pack<N>(a.values + place + i);
      });
    }
    float scores[kKeys][Q];
#pragma unroll
    for (int u = 0; u < kKeys; ++u) {
      float dots[Q] = {};
      if (present[u])
        state.each([&](int s, int) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const float key = to_float(k[u][s].v[j]);
#pragma unroll
            for (int q = 0; q < Q; ++q) dots[q] += state.q[q][s][j] * key;
          }
        });
#pragma unroll
      for (int q = 0; q < Q; ++q) {
        float score = state.sum(dots[q]);
        if constexpr (S == Scores::capped) score = a.softcap * tanhf(score * a.inverse_cap);
        scores[u][q] = present[u] ? score : -INFINITY;
      }
    }
#pragma unroll
    for (int q = 0; q < Q; ++q) {
      Softmax& softmax = state.softmax[q];
      float larger = softmax.max;
#pragma unroll
      for (int u = 0; u < kKeys; ++u) larger = Larger{}(larger, scores[u][q]);
      const float fade = softmax.max == -INFINITY ? 0.0f : expf(softmax.max - larger);
      softmax = {larger, softmax.sum * fade};
#pragma unroll
      for (int u = 0; u < kKeys; ++u) {
        scores[u][q] = scores[u][q] == -INFINITY ? 0.0f : expf(scores[u][q] - larger);
        softmax.sum += scores[u][q];
      }
      state.each([&](int s, int) {
#pragma unroll
        for (int j = 0; j < N; ++j) state.out[q][s][j] *= fade;
      });
    }
#pragma unroll
    for (int u = 0; u < kKeys; ++u)
      if (present[u])
        state.each([&](int s, int) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const float value = to_float(v[u][s].v[j]);
#pragma unroll
            for (int q = 0; q < Q; ++q) state.out[q][s][j] += scores[u][q] * value;
          }
        });
  }
}

/// Adds up the groups of each warp, whose sums are then in shared memory.
template <int N, int Q>
__device__ __forceinline__ void add_groups(LaneState<N, Q>& state, Shared<Q>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int q = 0; q < Q; ++q) {
    for (int bit = state.lanes; bit < kWarp; bit *= 2) {
      const Softmax::Factors f = state.softmax[q].add(from_lane_across(state.softmax[q], bit));
#pragma unroll
      for (int s = 0; s < LaneState<N, Q>::kSlots; ++s)
#pragma unroll
        for (int j = 0; j < N; ++j)
          state.out[q][s][j] = f.sum(state.out[q][s][j], from_lane_across(state.out[q][s][j], bit));
    }
    if (lane >= state.lanes) continue;
    state.each(
        [&](int s, int i) { Target<float>{shared.warps[warp].out[q]}.template put_pack<N>(i, state.out[q][s]); });
    if (lane == 0) shared.warps[warp].softmax[q] = state.softmax[q];
  }
}

/// The sum over the warps, for element d of query q.
template <int Q>
__device__ __forceinline__ Softmax sum_of_warps(const Shared<Q>& shared, int q, int d, float& out) {
  Softmax all;
  out = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const Softmax::Factors f = all.add(shared.warps[w].softmax[q]);
    out = f.sum(out, shared.warps[w].out[q][d]);
  }
  return all;
}

template <class T>
__device__ __forceinline__ void write_result(const Args<T>& a, int t, int head, int d, const Softmax& all, float out) {
  RowEnd end{all.max, all.sum};
  if (a.sinks) end.add_sink(a.sinks[head]);
  a.y[(std::int64_t{t} * a.heads + head) * a.width + d] = from_float<T>(out * end.factor / end.sum);
}

/// Block (token, Q queries of a group, section). The keys of a row are divided into sections of kSection keys, counted
/// from the first one that is seen, so the result does not depend on how many blocks take them.
template <class T, Scores S, int N, int Q>
__global__ void __launch_bounds__(kThreads, 3) cached_attention_heads(Args<T> a) {
  Shared<Q>& shared = shared_memory<Shared<Q>>();
  const int t = a.token(), row = a.rows[t], ratio = a.heads / a.groups, chunks = ceil_div(ratio, Q);
  const int group = static_cast<int>(blockIdx.y) / chunks, first = static_cast<int>(blockIdx.y) % chunks * Q;
  const int count = min(Q, ratio - first), head = group * ratio + first;
  const TokenSpan seen = a.keys_of(t);
  const int sections = ceil_div(seen.end - seen.begin, kSection), step = static_cast<int>(gridDim.z);
  for (int section = static_cast<int>(blockIdx.z); section < sections; section += step) {
    LaneState<N, Q> state(a.lane_bits, a.width);
#pragma unroll
    for (int q = 0; q < Q; ++q) {
      const T* query = a.q + (std::int64_t{t} * a.heads + head + min(q, count - 1)) * a.width;
      state.each([&](int s, int i) {
        load_floats(state.q[q][s], query + i);
#pragma unroll
        for (int j = 0; j < N; ++j) state.q[q][s][j] *= a.scale;
      });
    }
    const int begin = seen.begin + section * kSection;
    add_keys<T, S>(a, state, row, group, {begin, min(begin + kSection, seen.end)});
    add_groups(state, shared);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * a.width; i += static_cast<int>(kThreads)) {
      const int q = i / a.width, d = i % a.width;
      float out;
      const Softmax part = sum_of_warps(shared, q, d, out);
      if (a.parts) {
        float* to = a.part(head + q, section);
        to[d] = out;
        if (d == 0) to[a.width] = part.max, to[a.width + 1] = part.sum;
      } else {
        // Each element has its own copy of the softmax, so that no thread waits for another one.
        Total total = section == 0 ? Total{} : shared.total[q][d];
        const Softmax::Factors f = total.softmax.add(part);
        total.out = f.sum(total.out, out);
        shared.total[q][d] = total;
      }
    }
    __syncthreads();
  }
  if (a.parts) return;
  for (int i = static_cast<int>(threadIdx.x); i < count * a.width; i += static_cast<int>(kThreads)) {
    const Total& total = shared.total[i / a.width][i % a.width];
    write_result(a, t, head + i / a.width, i % a.width, total.softmax, total.out);
  }
}

/// Block (token, head): adds up the sections.
template <class T>
__global__ void __launch_bounds__(kThreads) add_sections(Args<T> a) {
  const int t = a.token(), head = static_cast<int>(blockIdx.y);
  const TokenSpan seen = a.keys_of(t);
  const int sections = ceil_div(seen.end - seen.begin, kSection);
  for (int d = static_cast<int>(threadIdx.x); d < a.width; d += static_cast<int>(kThreads)) {
    Softmax total;
    float sum = 0;
    for (int section = 0; section < sections; ++section) {
      const float* part = a.part(head, section);
      const Softmax::Factors f = total.add({part[a.width], part[a.width + 1]});
      sum = f.sum(sum, part[d]);
    }
    write_result(a, t, head, d, total, sum);
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

/// Runs all tokens with a block for every section, as many tokens at a time as their partial results fit into scratch
/// memory.
template <class T>
void in_sections(Ctx& ctx, Args<T> args, int tokens, const auto& attend) {
  const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(args.heads) *
                            static_cast<std::size_t>(args.splits) * static_cast<std::size_t>(args.width + 2);
  const int at_once =
      static_cast<int>(std::clamp<std::size_t>(Ctx::kScratchBytes / bytes, 1, static_cast<std::size_t>(tokens)));
  args.parts = reinterpret_cast<float*>(ctx.scratch(bytes * static_cast<std::size_t>(at_once)));
  for (args.first_token = 0; args.first_token < tokens; args.first_token += at_once) {
    const auto now = static_cast<unsigned>(std::min(at_once, tokens - args.first_token));
    attend(args, now, static_cast<unsigned>(args.splits));
    launch(ctx, "add_sections", add_sections<T>, {dim3(now, static_cast<unsigned>(args.heads)), kThreads}, args);
  }
}

/// The number of queries that share the keys of a block: up to 4, if so many share a head of the cache.
template <int N, class F>
void dispatch_queries(int ratio, const F& f) {
  if constexpr (N > 1)
    if (ratio > 1) return f.template operator()<4>();
  f.template operator()<1>();
}

template <class T>
void attend_cached(Ctx& ctx, const CachedAttention& a) {
  Args<T> args{.y = a.y.as<T>(),
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
               .sinks = sinks_of(a.sinks),
               .first_token = 0,
               .lane_bits = 0,
               .splits = 0,
               .parts = nullptr};
  const auto tokens = static_cast<int>(a.q.shape[0]);
  const int ratio = args.heads / args.groups, row = args.places.capacity * std::max(args.places.width, 1),
            keys = args.window > 0 ? std::min(args.window, row) : row;
  args.splits = ceil_div(keys, kSection);
  dispatch_packs<T>(packable<T>(args.width, args.q, args.keys, args.values), [&]<int N>() {
    const auto lanes =
        N == 1 ? unsigned{kWarp} : std::bit_ceil(static_cast<unsigned>(ceil_div(args.width, kLaneElements)));
    args.lane_bits = std::countr_zero(lanes);
    dispatch_queries<N>(ratio, [&]<int Q>() {
      const auto rows = static_cast<unsigned>(args.groups * ceil_div(ratio, Q));
      const auto attend = [&](const Args<T>& now, unsigned count, unsigned sections) {
        dispatch_scores(a.softcap, [&]<Scores S>() {
          launch(ctx, "cached_attention", cached_attention_heads<T, S, N, Q>,
                 {dim3(count, rows, sections), kThreads, sizeof(Shared<Q>)}, now);
        });
      };
      constexpr unsigned kEnoughBlocks = 4 * 132;  // to fill a GPU
      if (args.splits == 1 || static_cast<unsigned>(tokens) * rows >= kEnoughBlocks)
        attend(args, static_cast<unsigned>(tokens), 1);
      else
        in_sections(ctx, args, tokens, attend);
    });
  });
}

}  // namespace

void run_cuda(Ctx& ctx, const CachedAttention& a) {
  check(a.q.shape[2] <= kMaxHead, "cached_attention: a head of more than 256 elements");
  dispatch_storage(a.q.dtype, [&]<class T>() { attend_cached<T>(ctx, a); });
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
