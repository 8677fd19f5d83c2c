#include "kernels/split_rope.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

/// One block per token, in packs of N pairs. The elements of a rotated pair are half of the rotated part apart; the
/// other elements are paired likewise. So each element is read and written once, N at a time.
namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 128;

struct Sizes {
  int queries, keys, half, turned;  ///< heads of each kind; pairs per head, and how many of them are rotated

  __device__ __forceinline__ int heads() const { return queries + 2 * keys; }
};

struct Tables {
  const float *cos, *sin;
  const std::int32_t* positions;
};

/// Pairs p, ..., p + N - 1 of a head: their indices, and their angles.
template <int N>
struct PairsOf {
  int first, second;
  float cos[N], sin[N];

  __device__ __forceinline__ PairsOf(const Sizes& n, const Tables& tables, std::int64_t row, int p, bool rotary)
      : first(p < n.turned ? p : p + n.turned), second(p < n.turned ? p + n.turned : p + n.half) {
#pragma unroll
    for (int j = 0; j < N; ++j) cos[j] = 1, sin[j] = 0;
    if (!rotary || p >= n.turned) return;
    load_floats(cos, tables.cos + row + p);
    load_floats(sin, tables.sin + row + p);
  }
};

/// The location of a head of token t in the tensor of its kind.
template <class T>
struct OwnRows {
  T *q, *k, *v;

  __device__ __forceinline__ T* at(const Sizes& n, std::int64_t t, int head) const {
    const int width = 2 * n.half;
    if (head < n.queries) return q + (t * n.queries + head) * width;
    const int key = head - n.queries;
    return key < n.keys ? k + (t * n.keys + key) * width : v + (t * n.keys + key - n.keys) * width;
  }
};

/// Calls body(token, head, pairs) for the packs of the block's token; `pairs` is a PairsOf of the calling thread.
template <int N, class Body>
__device__ __forceinline__ void each_pack(const Sizes& n, const Tables& tables, const Body& body) {
  const std::int64_t t = blockIdx.x, row = std::int64_t{tables.positions[t]} * n.turned;
  for (int i = static_cast<int>(threadIdx.x) * N; i < n.heads() * n.half; i += static_cast<int>(kThreads) * N) {
    const int head = i / n.half;
    body(t, head, PairsOf<N>(n, tables, row, i % n.half, head < n.queries + n.keys));
  }
}

template <class T>
struct SplitArgs {
  OwnRows<T> to;
  const T* qkv;
  Tables tables;
  Sizes n;
};

template <int N, class T>
__global__ void __launch_bounds__(kThreads) split_token(SplitArgs<T> a) {
  each_pack<N>(a.n, a.tables, [&](std::int64_t t, int head, const PairsOf<N>& at) {
    const T* x = a.qkv + (t * a.n.heads() + head) * 2 * a.n.half;
    T* y = a.to.at(a.n, t, head);
    float u[N], v[N];
    load_floats(u, x + at.first);
    load_floats(v, x + at.second);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float x1 = u[j], x2 = v[j];
      u[j] = x1 * at.cos[j] - x2 * at.sin[j];
      v[j] = x2 * at.cos[j] + x1 * at.sin[j];
    }
    Target<T>{y}.template put_pack<N>(at.first, u);
    Target<T>{y}.template put_pack<N>(at.second, v);
  });
}

template <class T>
struct JoinArgs {
  Target<T> dqkv;
  OwnRows<const T> from;
  Tables tables;
  Sizes n;
};

template <int N, class T>
__global__ void __launch_bounds__(kThreads) join_token(JoinArgs<T> a) {
  each_pack<N>(a.n, a.tables, [&](std::int64_t t, int head, const PairsOf<N>& at) {
    const T* dy = a.from.at(a.n, t, head);
    const std::int64_t to = (t * a.n.heads() + head) * 2 * a.n.half;
    float u[N], v[N];
    load_floats(u, dy + at.first);
    load_floats(v, dy + at.second);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g1 = u[j], g2 = v[j];
      u[j] = g1 * at.cos[j] + g2 * at.sin[j];
      v[j] = g2 * at.cos[j] - g1 * at.sin[j];
    }
    a.dqkv.template put_pack<N>(to + at.first, u);
    a.dqkv.template put_pack<N>(to + at.second, v);
  });
}

Sizes sizes_of(const SplitHeads& n, const ConstTensor& cos) {
  return {static_cast<int>(n.queries), static_cast<int>(n.keys), static_cast<int>(n.width / 2),
          static_cast<int>(cos.shape[1])};
}
template <class Op>
Tables tables_of(const Op& a) {
  return {a.cos.template as<float>(), a.sin.template as<float>(), a.positions.template as<std::int32_t>()};
}
/// A pack consists of rotated pairs only or of other pairs only.
template <class T, class... P>
Packs packs_of(const Sizes& n, const P*... pointers) {
  return n.turned % kPackOf<T> == 0 ? packable<T>(n.half, pointers...) : Packs::no;
}

template <class T>
void split(Ctx& ctx, const SplitRope& a) {
  const SplitHeads n(a.q.shape, a.k.shape, a.v.shape, a.qkv.numel());
  const SplitArgs<T> args{.to = {a.q.as<T>(), a.k.as<T>(), a.v.as<T>()},
                          .qkv = a.qkv.as<T>(),
                          .tables = tables_of(a),
                          .n = sizes_of(n, a.cos)};
  dispatch_packs<T>(packs_of<T>(args.n, args.to.q, args.to.k, args.to.v, args.qkv, args.tables.cos, args.tables.sin),
                    [&]<int N>() {
                      launch(ctx, "split_rope", split_token<N, T>, {static_cast<unsigned>(n.tokens), kThreads}, args);
                    });
}

template <class T>
void join(Ctx& ctx, const SplitRopeGrad& a) {
  const SplitHeads n(a.dq.shape, a.dk.shape, a.dv.shape, a.dqkv.t.numel());
  const JoinArgs<T> args{.dqkv = target_of<T>(a.dqkv),
                         .from = {a.dq.as<T>(), a.dk.as<T>(), a.dv.as<T>()},
                         .tables = tables_of(a),
                         .n = sizes_of(n, a.cos)};
  dispatch_packs<T>(
      packs_of<T>(args.n, args.from.q, args.from.k, args.from.v, args.dqkv.data, args.tables.cos, args.tables.sin),
      [&]<int N>() {
        launch(ctx, "split_rope_grad", join_token<N, T>, {static_cast<unsigned>(n.tokens), kThreads}, args);
      });
}

}  // namespace

void run_cuda(Ctx& ctx, const SplitRope& a) {
  dispatch_storage(a.qkv.dtype, [&]<class T>() { split<T>(ctx, a); });
}
void run_cuda(Ctx& ctx, const SplitRopeGrad& a) {
  dispatch_storage(a.dq.dtype, [&]<class T>() { join<T>(ctx, a); });
}

}  // namespace qtrain::ops
