#include "kernels/rope.h"

#include <bit>

#include "kernels/cuda/column_parts.cuh"
#include "kernels/cuda/rope_heads.cuh"

namespace qtrain::ops {
namespace {

using namespace rotary;

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
  ForwardHeads<T> of[kParts];
  Angles angles;
  float eps, weight_offset;
};

template <class T, int N>
__device__ __forceinline__ void copy_heads(const ForwardHeads<T>& h, const Share<N>& share) {
#pragma unroll 1
  for (int head = share.first; head < share.end; ++head) {
    const std::int64_t from = share.in_x(head, h.division), to = share.row(head) * 2 * share.half;
    typename Share<N>::Floats u, v;
    share.load(u, v, h.x + from);
    share.each([&](int s, int i) {
      Target<T>{h.y}.template put_pack<N>(to + i, u[s]);
      Target<T>{h.y}.template put_pack<N>(to + share.half + i, v[s]);
    });
  }
}

template <class T, int N, bool kNorm>
__global__ void __launch_bounds__(kThreads) rope_heads(Forward<T> a) {
  const Part part(a.of);
  const ForwardHeads<T>& h = a.of[part.which];
  const Share<N> share(a.angles, h.division, std::int64_t{part.block} * (kThreads >> a.angles.lane_bits));
  if (part.which == kValues) return copy_heads(h, share);
  typename Share<N>::Floats cos, sin;
  share.load_angles(cos, sin, a.angles);
  LaneWeights<N> w;
  if constexpr (kNorm) w.load(share, h.weight, a.weight_offset);
#pragma unroll 1
  for (int k = 0; k < kHeads; ++k) {
    const int head = share.first + k;
    const std::int64_t row = share.row(head), begin = row * 2 * share.half;
    typename Share<N>::Floats u, v;
    if (head < share.end) share.load(u, v, h.x + share.in_x(head, h.division));
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
  BackwardHeads<T> of[kParts];
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
__device__ __forceinline__ void copy_heads_grad(const BackwardHeads<T>& h, const Share<N>& share) {
#pragma unroll 1
  for (int head = share.first; head < share.end; ++head) {
    const std::int64_t from = share.row(head) * 2 * share.half, to = share.in_x(head, h.division);
    typename Share<N>::Floats u, v;
    share.load(u, v, h.dy + from);
    share.each([&](int s, int i) {
      h.dx.template put_pack<N>(to + i, u[s]);
      h.dx.template put_pack<N>(to + share.half + i, v[s]);
    });
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) rope_heads_grad(Backward<T> a) {
  const Part part(a.of);
  const BackwardHeads<T>& h = a.of[part.which];
  const Share<N> share(a.angles, h.division, std::int64_t{part.block} * (kThreads >> a.angles.lane_bits));
  if (part.which == kValues) return copy_heads_grad(h, share);
  typename Share<N>::Floats cos, sin;
  share.load_angles(cos, sin, a.angles);
#pragma unroll 1
  for (int head = share.first; head < share.end; ++head) {
    const std::int64_t to = share.in_x(head, h.division);
    typename Share<N>::Floats u, v;
    share.load(u, v, h.dy + share.row(head) * 2 * share.half);
    share.each([&](int s, int i) {
      rotate_back(u[s], v[s], cos[s], sin[s]);
      h.dx.template put_pack<N>(to + i, u[s]);
      h.dx.template put_pack<N>(to + share.half + i, v[s]);
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
  const Part part(a.of);
  const BackwardHeads<T>& h = a.of[part.which];
  const std::int64_t groups = kThreads >> a.angles.lane_bits;
  if (part.which == kValues) return copy_heads_grad(h, Share<N>(a.angles, h.division, part.block * groups));
  const int width = 2 * a.angles.half;
  typename Share<N>::Floats du = {}, dv = {};
  for (std::int64_t items = part.block * groups; items < h.division.items; items += h.division.blocks * groups) {
    const Share<N> share(a.angles, h.division, items);
    const std::int64_t angle = share.angle(a.angles);
#pragma unroll 1
    for (int k = 0; k < kHeads; ++k) {
      const int head = share.first + k;
      const std::int64_t row = share.row(head), begin = share.in_x(head, h.division);
      typename Share<N>::Floats u, v;
      Pack<T, N> x1[Share<N>::kSlots], x2[Share<N>::kSlots];
      float inv = 0, dot = 0;
      if (head < share.end) {
        share.load(u, v, h.dy + row * width);
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
Division items_of(const Shape& s, std::int64_t stride) {
  const std::int64_t chunks = ceil_div(s[1], kHeads);
  return {.items = s[0] * chunks,
          .step = token_step(s, stride),
          .chunks = static_cast<int>(chunks),
          .heads = static_cast<int>(s[1]),
          .blocks = 0};
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

template <class Args>
Grid grid_of(const Args& args, std::size_t shared_bytes = 0) {
  int blocks = 0;
  for (const auto& heads : args.of) blocks += heads.division.blocks;
  return {static_cast<unsigned>(blocks), kThreads, shared_bytes};
}

/// Packs need a distance between the tokens of x that is a multiple of a pack.
template <class T>
Packs packs_of(const Angles& angles, std::int64_t stride) {
  return stride % kPackOf<T> == 0 ? packable<T>(angles.half, angles.cos, angles.sin) : Packs::no;
}

template <class T>
void forward(Ctx& ctx, const Rope& a) {
  Forward<T> args{.of = {},
                  .angles = angles_of(a),
                  .eps = static_cast<float>(a.eps),
                  .weight_offset = added_to_weights(a.weight_offset)};
  Packs packs = packs_of<T>(args.angles, a.x_stride);
  const Rope::Heads* const parts[kParts] = {&a.q, &a.k, &a.v};
  for (int i = 0; i < kParts; ++i) {
    const Rope::Heads& heads = *parts[i];
    if (!heads.given()) continue;
    ForwardHeads<T>& h = args.of[i];
    h = {.y = heads.y.as<T>(),
         .inv_rms = heads.weight ? heads.inv_rms.as<float>() : nullptr,
         .x = heads.x.as<T>(),
         .weight = heads.weight ? heads.weight.as<float>() : nullptr,
         .division = items_of(heads.x.shape, a.x_stride)};
    if (packable<T>(args.angles.half, h.y, h.x, h.weight) == Packs::no) packs = Packs::no;
  }
  divide(args, packs);
  const Grid grid = grid_of(args);
  dispatch_packs<T>(packs, [&]<int N>() {
    launch(ctx, "rope", a.q.weight ? rope_heads<T, N, true> : rope_heads<T, N, false>, grid, args);
  });
}

template <class T>
BackwardHeads<T> heads_of(const RopeGrad::Heads& heads, std::int64_t stride) {
  BackwardHeads<T> h{.dx = target_of<T>(heads.dx),
                     .dy = heads.dy.as<T>(),
                     .x = nullptr,
                     .weight = nullptr,
                     .inv_rms = nullptr,
                     .dweight = {},
                     .division = items_of(heads.dy.shape, stride)};
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
    return heads.dweight.wanted() ? std::max(args.of[i].division.blocks, 1) : std::int64_t{0};
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
  Packs packs = packs_of<T>(args.angles, a.x_stride);
  const RopeGrad::Heads* const of[kParts] = {&a.q, &a.k, &a.v};
  for (int i = 0; i < kParts; ++i) {
    const RopeGrad::Heads& heads = *of[i];
    if (!heads.wanted()) continue;
    const BackwardHeads<T>& h = args.of[i] = heads_of<T>(heads, a.x_stride);
    if (packable<T>(args.angles.half, h.dx.data, h.dy, h.x, h.weight) == Packs::no) packs = Packs::no;
  }
  divide(args, packs);
  const bool norm{a.q.weight}, sums = norm && divide_sums(ctx, a, args);
  const Grid grid = grid_of(args, sums ? sizeof(GroupSums) : 0);
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
