#include "kernels/cpu/glu_gate.h"
#include "kernels/cpu/row_largest.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

constexpr std::int64_t kChunk = 256;

/// Gates and ups of a chunk of a row, as separate arrays.
template <class A>
struct Chunk {
  A gate[kChunk], up[kChunk];
};

template <class A, class T>
A read(const T& v) {
  if constexpr (std::is_same_v<T, Bf16>)
    return static_cast<float>(v);
  else
    return v;
}
template <class T, class A>
void put(T& to, A v, bool adds) {
  to = T(v + (adds ? read<A>(to) : A{0}));
}

/// Elements c to c + n - 1 of a row of F gates and ups.
template <class T, GluOrder O>
struct RowPart {
  std::int64_t F, c, n;

  std::int64_t gate(std::int64_t i) const { return O == GluOrder::halves ? c + i : 2 * (c + i); }
  std::int64_t up(std::int64_t i) const { return O == GluOrder::halves ? F + c + i : 2 * (c + i) + 1; }

  void gather(Chunk<Acc<T>>& chunk, const T* row) const {
    for (std::int64_t i = 0; i < n; ++i) chunk.gate[i] = read<Acc<T>>(row[gate(i)]);
    for (std::int64_t i = 0; i < n; ++i) chunk.up[i] = read<Acc<T>>(row[up(i)]);
  }
  void scatter(const Chunk<Acc<T>>& chunk, T* row, Sink::Mode mode) const {
    const bool adds = mode == Sink::Mode::accumulate;
    for (std::int64_t i = 0; i < n; ++i) put(row[gate(i)], chunk.gate[i], adds);
    for (std::int64_t i = 0; i < n; ++i) put(row[up(i)], chunk.up[i], adds);
  }
};

/// Gate and up after clamping, and the derivatives of clamping: 1 or 0.
template <class A, class Op>
struct Clamped {
  Vec<A> gate, up, gate_slope, up_slope;

  Clamped(const Op& a, Vec<A> g, Vec<A> u) : gate(g), up(u), gate_slope(), up_slope() {
    const Vec<A> limit = simd::broadcast(static_cast<A>(a.limit)), one = simd::broadcast(A{1}), none{};
    gate = -simd::max(-limit, -g);  // keeps NaN
    up = simd::max(-limit, -simd::max(-limit, -u));
    gate_slope = simd::select(gate == g, one, none);
    up_slope = simd::select(up == u, one, none);
  }
};

/// Calls body(row, part) for the parts of all rows of [rows, F].
template <class T, GluOrder O, class Body>
void for_parts(Ctx& ctx, const Shape& shape, const Body& body) {
  const std::int64_t F = shape[-1];
  for_rows(ctx, shape.rows(), F, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t c = 0; c < F; c += kChunk) body(r, RowPart<T, O>{F, c, std::min(kChunk, F - c)});
  });
}

template <class T, GluOrder O>
void forward(Ctx& ctx, const PackedGlu& a) {
  using A = Acc<T>;
  const std::int64_t F = a.y.shape[-1];
  T* y = a.y.as<T>();
  const T* x = a.x.as<T>();
  [[maybe_unused]] const A alpha = static_cast<A>(a.alpha);
  for_parts<T, O>(ctx, a.y.shape, [&](std::int64_t r, const RowPart<T, O>& part) {
    Chunk<A> chunk;
    part.gather(chunk, x + r * 2 * F);
    simd::each<A>(part.n, [&](std::int64_t i, auto lanes) {
      const Vec<A> g = simd::load<A>(chunk.gate + i, lanes), u = simd::load<A>(chunk.up + i, lanes);
      T* to = y + r * a.y_step() + part.c + i;
      if constexpr (O == GluOrder::halves) {
        simd::store<A>(to, u * g * Gate<A>(g, a.activation).s, lanes);
      } else {
        const Clamped<A, PackedGlu> cut(a, g, u);
        simd::store<A>(to, (cut.up + A{1}) * cut.gate * sigmoid<A>(alpha * cut.gate), lanes);
      }
    });
  });
}

template <class T, GluOrder O>
void backward(Ctx& ctx, const PackedGluGrad& a) {
  using A = Acc<T>;
  const std::int64_t F = a.dy.shape[-1];
  T* dx = a.dx.t.as<T>();
  const T *dy = a.dy.as<T>(), *x = a.x.as<T>();
  [[maybe_unused]] const A alpha = static_cast<A>(a.alpha);
  for_parts<T, O>(ctx, a.dy.shape, [&](std::int64_t r, const RowPart<T, O>& part) {
    Chunk<A> chunk;
    part.gather(chunk, x + r * 2 * F);
    simd::each<A>(part.n, [&](std::int64_t i, auto lanes) {
      A *gate = chunk.gate + i, *up = chunk.up + i;
      const Vec<A> g = simd::load<A>(gate, lanes), u = simd::load<A>(up, lanes);
      const Vec<A> d = simd::load<A>(dy + r * F + part.c + i, lanes);
      if constexpr (O == GluOrder::halves) {
        const Gate<A> k(g, a.activation);
        simd::store<A>(up, d * g * k.s, lanes);
        simd::store<A>(gate, d * u * k.s * (A{1} + k.turn * (A{1} - k.s)), lanes);
      } else {
        const Clamped<A, PackedGluGrad> cut(a, g, u);
        const Vec<A> s = sigmoid<A>(alpha * cut.gate);
        simd::store<A>(up, d * cut.gate * s * cut.up_slope, lanes);
        simd::store<A>(gate, d * (cut.up + A{1}) * s * (A{1} + alpha * cut.gate * (A{1} - s)) * cut.gate_slope, lanes);
      }
    });
    part.scatter(chunk, dx + r * 2 * F, a.dx.mode);
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const PackedGlu& a) {
  dispatch_float(a.y.dtype, [&]<class T>() {
    a.order == GluOrder::halves ? forward<T, GluOrder::halves>(ctx, a) : forward<T, GluOrder::pairs>(ctx, a);
    find_row_largest<T>(ctx, a.largest, a.y);
  });
}
void run_cpu(Ctx& ctx, const PackedGluGrad& a) {
  dispatch_float(a.dy.dtype, [&]<class T>() {
    a.order == GluOrder::halves ? backward<T, GluOrder::halves>(ctx, a) : backward<T, GluOrder::pairs>(ctx, a);
    find_row_largest<T>(ctx, a.largest, a.dx.t);
  });
}

}  // namespace qtrain::ops
