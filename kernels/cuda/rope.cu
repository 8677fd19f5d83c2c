#include "kernels/rope.h"

#include <bit>

#include "kernels/cuda/column_parts.cuh"
#include "kernels/cuda/norm_weight.cuh"
#include "kernels/cuda/reduce.cuh"

/// A group of lanes (a power of two) takes some heads of a token, one after another, so that it loads the token's
/// angles and the norm's weights only once. Queries and keys share a launch: the first blocks take the queries.
namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 128;
constexpr int kPairs = 8;  ///< pairs of elements per lane: heads of up to 512 elements
constexpr int kHeads = 4;  ///< heads of a token that a group takes

/// The work on queries or keys. An item is up to kHeads heads of one token.
struct Division {
  std::int64_t items;
  int chunks, heads, blocks;  ///< items and heads per token; blocks of the launch
};

struct Angles {
  const float *cos, *sin;
  const std::int32_t* positions;
  int half;       ///< pairs of a head
  int lane_bits;  ///< log2 of the lanes of a group
};

/// Which of the queries (0) and keys (1) the calling block works on, and its index among their blocks.
struct Part {
  int which, block;

  __device__ __forceinline__ explicit Part(const Division& queries)
      : which(static_cast<int>(blockIdx.x) >= queries.blocks),
        block(static_cast<int>(blockIdx.x) - (which ? queries.blocks : 0)) {}
};

/// The heads that the calling lane's group takes, and the pairs of each that the lane holds: packs of N pairs. Without
/// packs, a group is a whole warp, so that the places of a lane's pairs differ by constants.
template <int N>
struct Share {
  static constexpr int kSlots = kPairs / N;
  using Floats = float[kSlots][N];

  std::int64_t token;
  int first, end;  ///< heads of the token; none for a group without an item
  int lane, lanes, half, heads;

  __device__ __forceinline__ Share(const Angles& angles, const Division& d, std::int64_t first_item)
      : lanes(N == 1 ? kWarp : 1 << angles.lane_bits), half(angles.half), heads(d.heads) {
    const std::int64_t item = first_item + (threadIdx.x >> angles.lane_bits);
    const bool exists = item < d.items;
    token = exists ? item / d.chunks : 0;
    first = exists ? static_cast<int>(item % d.chunks) * kHeads : 0;
    end = exists ? min(first + kHeads, d.heads) : 0;
    lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  }

  /// Calls f(slot, index of the pack's first pair) for the packs of the lane.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
      if (const int i = (lane + s * lanes) * N; i < half) f(s, i);
  }
  /// Likewise if the group has this head.
  template <class F>
  __device__ __forceinline__ void each_of(int head, const F& f) const {
    if (head < end) each(f);
  }
  /// Loads the packs of a row of pairs: first halves to u, second halves to v.
  template <class T>
  __device__ __forceinline__ void load(Floats& u, Floats& v, const T* x) const {
    each([&](int s, int i) {
      load_floats(u[s], x + i);
      load_floats(v[s], x + half + i);
    });
  }
  /// Index of the token's first angle in the tables.
  __device__ __forceinline__ std::int64_t angle(const Angles& a) const {
    return std::int64_t{a.positions[token]} * half;
  }
  __device__ __forceinline__ void load_angles(Floats& cos, Floats& sin, const Angles& a) const {
    const std::int64_t row = angle(a);
    each([&](int s, int i) {
      load_floats(cos[s], a.cos + row + i);
      load_floats(sin[s], a.sin + row + i);
    });
  }
  /// Index of a head of the token among all heads of all tokens.
  __device__ __forceinline__ std::int64_t row(int head) const {
    return token * heads + head;
  }
  /// The sum over the lanes of the group. All lanes of the warp must call it.
  __device__ __forceinline__ float sum(float v) const {
    for (int bit = lanes / 2; bit > 0; bit /= 2) v += from_lane_across(v, bit);
    return v;
  }
};

/// The weights of a lane's pairs.
template <int N>
struct LaneWeights {
  typename Share<N>::Floats u = {}, v = {};

  __device__ __forceinline__ void load(const Share<N>& share, const float* weight, float offset) {
    share.each([&](int s, int i) {
      load_weights(u[s], weight + i, offset);
      load_weights(v[s], weight + share.half + i, offset);
    });
  }
};

template <class T>
struct ForwardHeads {
  T* y;
  float* inv_rms;
  const T* x;
  const float* weight;
  Division division;
};
template <class T>
struct Forward {
  ForwardHeads<T> of[2];  ///< queries, keys
  Angles angles;
  float eps, weight_offset;
};

template <class T, int N, bool kNorm>
__global__ void __launch_bounds__(kThreads) rope_heads(Forward<T> a) {
  const Part part(a.of[0].division);
  const ForwardHeads<T>& h = a.of[part.which];
  const Share<N> share(a.angles, h.division, std::int64_t{part.block} * (kThreads >> a.angles.lane_bits));
  typename Share<N>::Floats cos, sin;
  share.load_angles(cos, sin, a.angles);
  LaneWeights<N> w;
  if constexpr (kNorm) w.load(share, h.weight, a.weight_offset);
#pragma unroll 1
  for (int k = 0; k < kHeads; ++k) {
    const int head = share.first + k;
    const std::int64_t row = share.row(head), begin = row * 2 * share.half;
    typename Share<N>::Floats u, v;
    if (head < share.end) share.load(u, v, h.x + begin);
    if constexpr (kNorm) {
      float squares = 0;
      share.each_of(head, [&](int s, int) {
#pragma unroll
        for (int j = 0; j < N; ++j) squares += u[s][j] * u[s][j] + v[s][j] * v[s][j];
      });
      const float inv = rsqrtf(share.sum(squares) / static_cast<float>(2 * share.half) + a.eps);
      if (head < share.end && share.lane == 0) h.inv_rms[row] = inv;
      share.each_of(head, [&](int s, int) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          u[s][j] *= inv * w.u[s][j];
          v[s][j] *= inv * w.v[s][j];
        }
      });
    }
    share.each_of(head, [&](int s, int i) {
      float y1[N], y2[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        y1[j] = u[s][j] * cos[s][j] - v[s][j] * sin[s][j];
        y2[j] = v[s][j] * cos[s][j] + u[s][j] * sin[s][j];
      }
      Target<T>{h.y}.template put_pack<N>(begin + i, y1);
      Target<T>{h.y}.template put_pack<N>(begin + share.half + i, y2);
    });
  }
}

template <class T>
struct BackwardHeads {
  Target<T> dx;
  const T *dy, *x;
  const float *weight, *inv_rms;  ///< null: no norm
  ColumnParts dweight;            ///< of width 2 half; null data: not wanted
  Division division;
};
template <class T>
struct Backward {
  BackwardHeads<T> of[2];  ///< queries, keys
  Angles angles;
  float weight_offset;
};

/// Rotates the gradients of a lane's pairs back.
template <int N>
__device__ __forceinline__ void rotate_back(float (&u)[N], float (&v)[N], const float (&cos)[N],
                                            const float (&sin)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g1 = u[j], g2 = v[j];
    u[j] = g1 * cos[j] + g2 * sin[j];
    v[j] = g2 * cos[j] - g1 * sin[j];
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) rope_heads_grad(Backward<T> a) {
  const Part part(a.of[0].division);
  const BackwardHeads<T>& h = a.of[part.which];
  const Share<N> share(a.angles, h.division, std::int64_t{part.block} * (kThreads >> a.angles.lane_bits));
  typename Share<N>::Floats cos, sin;
  share.load_angles(cos, sin, a.angles);
#pragma unroll 1
  for (int head = share.first; head < share.end; ++head) {
    const std::int64_t begin = share.row(head) * 2 * share.half;
    typename Share<N>::Floats u, v;
    share.load(u, v, h.dy + begin);
    share.each([&](int s, int i) {
      rotate_back(u[s], v[s], cos[s], sin[s]);
      h.dx.template put_pack<N>(begin + i, u[s]);
      h.dx.template put_pack<N>(begin + share.half + i, v[s]);
    });
  }
}

/// One sum for each thread's pairs, first halves before second halves.
struct GroupSums {
  float v[2 * kPairs * kThreads];
};

/// With a norm. If dweight is wanted (kSums), a block takes every `blocks`-th set of items and writes its part of the
/// sum; otherwise it takes one set.
template <class T, int N, bool kSums>
__global__ void __launch_bounds__(kThreads) normed_rope_heads_grad(Backward<T> a) {
  const Part part(a.of[0].division);
  const BackwardHeads<T>& h = a.of[part.which];
  const std::int64_t groups = kThreads >> a.angles.lane_bits;
  const int width = 2 * a.angles.half;
  typename Share<N>::Floats du = {}, dv = {};
  for (std::int64_t items = part.block * groups; items < h.division.items; items += h.division.blocks * groups) {
    const Share<N> share(a.angles, h.division, items);
    const std::int64_t angle = share.angle(a.angles);
#pragma unroll 1
    for (int k = 0; k < kHeads; ++k) {
      const int head = share.first + k;
      const std::int64_t row = share.row(head), begin = row * width;
      typename Share<N>::Floats u, v;
      Pack<T, N> x1[Share<N>::kSlots], x2[Share<N>::kSlots];
      float inv = 0, dot = 0;
      if (head < share.end) {
        share.load(u, v, h.dy + begin);
        share.each([&](int s, int i) {
          x1[s] = load_pack<N>(h.x + begin + i);
          x2[s] = load_pack<N>(h.x + begin + share.half + i);
        });
        inv = h.inv_rms[row];
      }
      share.each_of(head, [&](int s, int i) {
        // Angles and weights come from the cache: kept in registers, they would leave room for fewer blocks.
        float cos[N], sin[N], w1[N], w2[N];
        load_floats(cos, a.angles.cos + angle + i);
        load_floats(sin, a.angles.sin + angle + i);
        rotate_back(u[s], v[s], cos, sin);
        load_weights(w1, h.weight + i, a.weight_offset);
        load_weights(w2, h.weight + share.half + i, a.weight_offset);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if constexpr (kSums) {
            du[s][j] += u[s][j] * to_float(x1[s].v[j]) * inv;
            dv[s][j] += v[s][j] * to_float(x2[s].v[j]) * inv;
          }
          u[s][j] *= w1[j];
          v[s][j] *= w2[j];
          dot += u[s][j] * to_float(x1[s].v[j]) + v[s][j] * to_float(x2[s].v[j]);
        }
      });
      if (!h.dx.data) continue;
      const float pull = share.sum(dot) / static_cast<float>(width) * inv * inv;
      share.each_of(head, [&](int s, int i) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          u[s][j] = inv * (u[s][j] - pull * to_float(x1[s].v[j]));
          v[s][j] = inv * (v[s][j] - pull * to_float(x2[s].v[j]));
        }
        h.dx.template put_pack<N>(begin + i, u[s]);
        h.dx.template put_pack<N>(begin + share.half + i, v[s]);
      });
    }
  }
  if constexpr (kSums) {
    if (!h.dweight.data) return;
    GroupSums& sums = shared_memory<GroupSums>();
    const Share<N> share(a.angles, h.division, 0);
    float* mine = sums.v + (threadIdx.x >> a.angles.lane_bits) * width;
    share.each([&](int s, int i) {
      Target<float>{mine}.template put_pack<N>(i, du[s]);
      Target<float>{mine}.template put_pack<N>(share.half + i, dv[s]);
    });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(kThreads)) {
      float sum = 0;
      for (int g = 0; g < static_cast<int>(groups); ++g) sum += sums.v[g * width + i];
      h.dweight.data[std::int64_t{part.block} * width + i] = sum;
    }
  }
}

template <class Op>
Angles angles_of(const Op& a) {
  const auto half = static_cast<int>(a.cos.shape[1]);
  check(half <= kPairs * kWarp, "rope: a head of more than 512 elements");
  return {.cos = a.cos.template as<float>(),
          .sin = a.sin.template as<float>(),
          .positions = a.positions.template as<std::int32_t>(),
          .half = half,
          .lane_bits = 0};
}

/// The items of heads [T, H, D].
Division items_of(const Shape& s) {
  const std::int64_t chunks = ceil_div(s[1], kHeads);
  return {.items = s[0] * chunks, .chunks = static_cast<int>(chunks), .heads = static_cast<int>(s[1]), .blocks = 0};
}

/// Chooses the lanes of a group, and one set of items per block.
template <class Args>
void divide(Args& args, Packs packs) {
  const auto few = std::bit_ceil(static_cast<unsigned>(ceil_div(args.angles.half, kPairs)));
  args.angles.lane_bits = std::countr_zero(packs == Packs::yes ? few : unsigned{kWarp});
  for (auto& heads : args.of) {
    Division& d = heads.division;
    d.blocks = static_cast<int>(ceil_div(d.items, std::int64_t{kThreads >> args.angles.lane_bits}));
  }
}

Grid grid_of(const Division& queries, const Division& keys, std::size_t shared_bytes = 0) {
  return {static_cast<unsigned>(queries.blocks + keys.blocks), kThreads, shared_bytes};
}

template <class T>
void forward(Ctx& ctx, const Rope& a) {
  Forward<T> args{.of = {},
                  .angles = angles_of(a),
                  .eps = static_cast<float>(a.eps),
                  .weight_offset = added_to_weights(a.weight_offset)};
  Packs packs = packable<T>(args.angles.half, args.angles.cos, args.angles.sin);
  for (int i = 0; i < 2; ++i) {
    const Rope::Heads& heads = i == 0 ? a.q : a.k;
    if (!heads.given()) continue;
    ForwardHeads<T>& h = args.of[i];
    h = {.y = heads.y.as<T>(),
         .inv_rms = heads.weight ? heads.inv_rms.as<float>() : nullptr,
         .x = heads.x.as<T>(),
         .weight = heads.weight ? heads.weight.as<float>() : nullptr,
         .division = items_of(heads.x.shape)};
    if (packable<T>(args.angles.half, h.y, h.x, h.weight) == Packs::no) packs = Packs::no;
  }
  divide(args, packs);
  const Grid grid = grid_of(args.of[0].division, args.of[1].division);
  dispatch_packs<T>(packs, [&]<int N>() {
    launch(ctx, "rope", a.q.weight ? rope_heads<T, N, true> : rope_heads<T, N, false>, grid, args);
  });
}

template <class T>
BackwardHeads<T> heads_of(const RopeGrad::Heads& heads) {
  BackwardHeads<T> h{.dx = target_of<T>(heads.dx),
                     .dy = heads.dy.as<T>(),
                     .x = nullptr,
                     .weight = nullptr,
                     .inv_rms = nullptr,
                     .dweight = {},
                     .division = items_of(heads.dy.shape)};
  if (!heads.weight) return h;
  h.x = heads.x.as<T>();
  h.weight = heads.weight.as<float>();
  h.inv_rms = heads.inv_rms.as<float>();
  return h;
}

/// Lets the blocks of queries and keys whose dweight is wanted take several sets of items each. Returns whether any is.
template <class T>
bool divide_sums(Ctx& ctx, const RopeGrad& a, Backward<T>& args) {
  const auto sets = [&](const RopeGrad::Heads& heads, int i) {
    return heads.dweight.wanted() ? std::int64_t{args.of[i].division.blocks} : 0;
  };
  const auto parts =
      column_parts<2>(ctx, {sets(a.q, 0), sets(a.k, 1)}, {.width = 2 * args.angles.half, .threads = kThreads});
  for (int i = 0; i < 2; ++i) {
    if (parts[i].parts == 0) continue;
    args.of[i].dweight = parts[i];
    args.of[i].division.blocks = parts[i].parts;
  }
  return parts[0].parts + parts[1].parts > 0;
}

template <class T>
void backward(Ctx& ctx, const RopeGrad& a) {
  Backward<T> args{.of = {}, .angles = angles_of(a), .weight_offset = added_to_weights(a.weight_offset)};
  Packs packs = packable<T>(args.angles.half, args.angles.cos, args.angles.sin);
  for (int i = 0; i < 2; ++i) {
    const RopeGrad::Heads& heads = i == 0 ? a.q : a.k;
    if (!heads.wanted()) continue;
    const BackwardHeads<T>& h = args.of[i] = heads_of<T>(heads);
    if (packable<T>(args.angles.half, h.dx.data, h.dy, h.x, h.weight) == Packs::no) packs = Packs::no;
  }
  divide(args, packs);
  const bool norm{a.q.weight}, sums = norm && divide_sums(ctx, a, args);
  const Grid grid = grid_of(args.of[0].division, args.of[1].division, sums ? sizeof(GroupSums) : 0);
  dispatch_packs<T>(packs, [&]<int N>() {
    if (!norm)
      launch(ctx, "rope_grad", rope_heads_grad<T, N>, grid, args);
    else
      launch(ctx, "normed_rope_grad", sums ? normed_rope_heads_grad<T, N, true> : normed_rope_heads_grad<T, N, false>,
             grid, args);
  });
  if (args.of[0].dweight.data) finish_column_parts(ctx, a.q.dweight, args.of[0].dweight);
  if (args.of[1].dweight.data) finish_column_parts(ctx, a.k.dweight, args.of[1].dweight);
}

}  // namespace

void run_cuda(Ctx& ctx, const Rope& a) {
  dispatch_storage(a.q.x.dtype, [&]<class T>() { forward<T>(ctx, a); });
}
void run_cuda(Ctx& ctx, const RopeGrad& a) {
  dispatch_storage(a.q.dy.dtype, [&]<class T>() { backward<T>(ctx, a); });
}

}  // namespace qtrain::ops
