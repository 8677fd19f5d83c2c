#include "kernels/cpu/attention_reference.h"

#include <limits>

#include "kernels/cpu/attention_segments.h"
#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::dot;
using simd::Vec;

struct Sizes {
  std::int64_t T;  ///< number of keys
  QueryRange queries;
  std::int64_t Hq, Hkv, D;

  std::int64_t group() const { return Hq / Hkv; }
  std::int64_t q(std::int64_t t, std::int64_t h) const { return ((t - queries.first) * Hq + h) * D; }
  std::int64_t kv(std::int64_t t, std::int64_t h) const { return (t * Hkv + h) * D; }
  std::int64_t lse(std::int64_t t, std::int64_t h) const { return h * queries.count + t - queries.first; }
};
template <class Op>
Sizes sizes_of(const Op& a) {
  return {a.k.shape[0], {a.first_query, a.q.shape[0]}, a.q.shape[1], a.k.shape[1], a.q.shape[2]};
}

/// Scratch memory for the scores and the results of one row.
template <class A>
struct Scratch {
  A *scores, *row;

  Scratch(Ctx& ctx, int worker, std::int64_t keys, std::int64_t D) {
    const auto space = ctx.workspace(worker);
    check(static_cast<std::size_t>(keys + D) * sizeof(A) <= space.size(), "attention: a segment exceeds the workspace");
    scores = reinterpret_cast<A*>(space.data());
    row = scores + keys;
  }
};

template <class T>
void write_row(const Sink& sink, std::int64_t offset, const Acc<T>* row, std::int64_t D) {
  T* y = sink.t.as<T>() + offset;
  simd::each<Acc<T>>(D, [&](std::int64_t d, auto lanes) {
    write<Acc<T>>(y + d, simd::load<Acc<T>>(row + d, lanes), lanes, sink.mode);
  });
}

template <class T>
struct Query {
  const Attention& a;
  Sizes n;
  Segment segment;
  std::int64_t i, head;
};

/// softcap * tanh(scale * product / softcap)
template <class A, class Op>
A capped_score(const Op& a, A product) {
  const A cap = static_cast<A>(a.softcap);
  return cap * std::tanh(static_cast<A>(a.scale) * product / cap);
}

/// y_i = sum_j p_ij v_j, p_ij = softmax_j(score_ij)
template <class T>
void attend(const Query<T>& query, const Scratch<Acc<T>>& scratch) {
  using A = Acc<T>;
  const Attention& a = query.a;
  const Sizes& n = query.n;
  const std::int64_t i = query.i, h = query.head, g = h / n.group();
  const std::int64_t first = first_key(i, query.segment.begin, a.window);
  const T *q = a.q.as<T>() + n.q(i, h), *k = a.k.as<T>(), *v = a.v.as<T>();
  A max = -std::numeric_limits<A>::infinity(), sum = 0;
  for (std::int64_t j = first; j <= i; ++j) {
    const A product = dot<A>(q, k + n.kv(j, g), n.D);
    const A score = a.softcap > 0 ? capped_score(a, product) : static_cast<A>(a.scale) * product;
    scratch.scores[j - first] = score;
    max = std::max(max, score);
  }
  if (a.sinks) {
    const A sink = a.sinks.as<A>()[h];
    max = std::max(max, sink);
    sum = std::exp(sink - max);
  }
  for (std::int64_t j = first; j <= i; ++j)
    sum += scratch.scores[j - first] = std::exp(scratch.scores[j - first] - max);
  std::fill_n(scratch.row, n.D, A{});
  for (std::int64_t j = first; j <= i; ++j)
    simd::axpy<A>(scratch.row, scratch.scores[j - first] / sum, v + n.kv(j, g), n.D);
  write_row<T>(store(a.y), n.q(i, h), scratch.row, n.D);
  a.lse.as<A>()[n.lse(i, h)] = max + std::log(sum);
}

template <class T>
struct Backward {
  using A = Acc<T>;
  const AttentionGrad& a;
  Sizes n;
  const T *q, *k, *v, *y, *dy;
  const A* lse;
  A scale;

  explicit Backward(const AttentionGrad& op)
      : a(op),
        n(sizes_of(op)),
        q(op.q.as<T>()),
        k(op.k.as<T>()),
        v(op.v.as<T>()),
        y(op.y.as<T>()),
        dy(op.dy.as<T>()),
        lse(op.lse.as<A>()),
        scale(static_cast<A>(op.scale)) {}

  /// delta_i = dy_i . y_i, which equals sum_j p_ij dp_ij.
  A delta(std::int64_t i, std::int64_t h) const { return dot<A>(dy + n.q(i, h), y + n.q(i, h), n.D); }

  struct Pair {
    std::int64_t i, j, h;
  };
  A product(const Pair& p) const { return dot<A>(q + n.q(p.i, p.h), k + n.kv(p.j, p.h / n.group()), n.D); }
  /// p_ij = exp(score_ij - lse_i).
  A probability(const Pair& p) const {
    const A of_query = lse[n.lse(p.i, p.h)];
    if (a.softcap > 0) return std::exp(capped_score(a, product(p)) - of_query);
    return std::exp(scale * product(p) - of_query);
  }
  /// ds_ij = scale p_ij (dy_i . v_j - delta_i), times 1 - tanh^2 for a capped score: the gradient of q_i . k_j.
  A score_grad(const Pair& p, A probability, A delta) const {
    const A ds = scale * probability * (dot<A>(dy + n.q(p.i, p.h), v + n.kv(p.j, p.h / n.group()), n.D) - delta);
    if (a.softcap == 0) return ds;
    const A t = capped_score(a, product(p)) / static_cast<A>(a.softcap);
    return ds * (1 - t * t);
  }

  /// dq_i = sum_j ds_ij k_j
  void query(const Segment& s, std::int64_t i, std::int64_t h, A* row) const {
    const A d = delta(i, h);
    std::fill_n(row, n.D, A{});
    for (std::int64_t j = first_key(i, s.begin, a.window); j <= i; ++j) {
      const Pair pair{i, j, h};
      simd::axpy<A>(row, score_grad(pair, probability(pair), d), k + n.kv(j, h / n.group()), n.D);
    }
    write_row<T>(a.dq, n.q(i, h), row, n.D);
  }

  /// dk_j = sum_i ds_ij q_i and dv_j = sum_i p_ij dy_i over the query heads of key head g.
  void key(const Segment& s, std::int64_t j, std::int64_t g, A* row) const {
    A *dk = row, *dv = row + n.D;
    std::fill_n(row, 2 * n.D, A{});
    for (std::int64_t h = g * n.group(); h < (g + 1) * n.group(); ++h)
      for (std::int64_t i = std::max(j, s.first_query); i < last_query(j, s.end, a.window); ++i) {
        const Pair pair{i, j, h};
        const A p = probability(pair);
        simd::axpy<A>(dv, p, dy + n.q(i, h), n.D);
        simd::axpy<A>(dk, score_grad(pair, p, delta(i, h)), q + n.q(i, h), n.D);
      }
    if (a.dk.wanted()) write_row<T>(a.dk, n.kv(j, g), dk, n.D);
    if (a.dv.wanted()) write_row<T>(a.dv, n.kv(j, g), dv, n.D);
  }
};

}  // namespace

template <class T>
void attention_reference(Ctx& ctx, const Attention& a) {
  const Sizes n = sizes_of(a);
  for (const Segment& s : segments_of(a.cu_seqlens, n.T, n.queries))
    ctx.pool().run(s.queries(), [&](std::int64_t task, int worker) {
      const Scratch<Acc<T>> scratch(ctx, worker, s.size(), n.D);
      for (std::int64_t h = 0; h < n.Hq; ++h) attend<T>({a, n, s, s.first_query + task, h}, scratch);
    });
}

template <class T>
void attention_grad_reference(Ctx& ctx, const AttentionGrad& a) {
  const Backward<T> backward(a);
  const Sizes& n = backward.n;
  for (const Segment& s : segments_of(a.cu_seqlens, n.T, n.queries))
    ctx.pool().run(s.size(), [&](std::int64_t task, int worker) {
      const Scratch<Acc<T>> scratch(ctx, worker, 0, 2 * n.D);
      const std::int64_t token = s.begin + task;
      for (std::int64_t h = 0; h < n.Hq && a.dq.wanted() && token >= s.first_query; ++h)
        backward.query(s, token, h, scratch.row);
      for (std::int64_t g = 0; g < n.Hkv; ++g) backward.key(s, token, g, scratch.row);
    });
}

template void attention_reference<float>(Ctx&, const Attention&);
template void attention_reference<double>(Ctx&, const Attention&);
template void attention_reference<Bf16>(Ctx&, const Attention&);
template void attention_grad_reference<float>(Ctx&, const AttentionGrad&);
template void attention_grad_reference<double>(Ctx&, const AttentionGrad&);
template void attention_grad_reference<Bf16>(Ctx&, const AttentionGrad&);

}  // namespace qtrain::ops
