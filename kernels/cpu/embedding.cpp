#include "kernels/embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

template <class F>
void dispatch_storage(DType d, F&& f) {
  if (d == DType::f16) return f.template operator()<F16>();
  return dispatch_float(d, f);
}

struct GatheredRows {
  ConstTensor x, rows;
  double scale = 1;
};

/// y[i] = scale * x[rows[i]], with type conversion.
template <class Y, class X>
void gather(Ctx& ctx, Tensor y, const GatheredRows& rows) {
  using A = std::conditional_t<std::is_same_v<Y, double> || std::is_same_v<X, double>, double, float>;
  const std::int64_t C = y.shape[-1], height = rows.x.shape.rows();
  Y* to = y.as<Y>();
  const X* from = rows.x.as<X>();
  const std::int32_t* index = rows.rows.as<std::int32_t>();
  const Vec<A> scale = simd::broadcast(static_cast<A>(rows.scale));
  for_rows(ctx, rows.rows.numel(), C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = index[i];
      if (row == kNoRow) {
        std::fill_n(to + i * C, C, Y(A{0}));
        continue;
      }
      check(row >= 0 && row < height, "a row index is outside the table");
      simd::each<A>(C, [&](std::int64_t c, auto lanes) {
        simd::store<A>(to + i * C + c, scale * simd::load<A>(from + row * C + c, lanes), lanes);
      });
    }
  });
}

template <class T>
void clear(Ctx& ctx, T* y, std::int64_t n) {
  for_ranges(ctx, n, kBlockSize, [&](std::int64_t begin, std::int64_t end) { std::fill(y + begin, y + end, T(0.F)); });
}

/// Token indices ordered by (token, t), and the start of each distinct token's run (followed by the end).
struct TokenRuns {
  std::vector<std::int64_t> order, starts;

  explicit TokenRuns(std::span<const std::int32_t> tokens) : order(tokens.size()) {
    std::iota(order.begin(), order.end(), 0);
    const auto token = [&](std::int64_t t) { return tokens[static_cast<std::size_t>(t)]; };
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return token(a) < token(b); });
    for (std::size_t i = 0; i < order.size(); ++i)
      if (i == 0 || token(order[i]) != token(order[i - 1])) starts.push_back(static_cast<std::int64_t>(i));
    starts.push_back(static_cast<std::int64_t>(order.size()));
  }
};

/// Each table row has one writer: a token's gradients are added in order of t, in f32 (f64) until the row is complete.
template <class W, class T>
void embedding_backward(Ctx& ctx, const EmbeddingGrad& a) {
  using A = Acc<T>;
  const std::int64_t C = a.dy.shape[-1], V = a.dtable.t.shape.rows();
  W* table = a.dtable.t.as<W>();
  const T* dy = a.dy.as<T>();
  const auto tokens = a.tokens.span<std::int32_t>();
  const Vec<A> scale = simd::broadcast(static_cast<A>(a.scale));
  const TokenRuns runs(tokens);
  if (!a.dtable.adds()) clear(ctx, table, a.dtable.t.numel());
  for_rows(ctx, static_cast<std::int64_t>(runs.starts.size()) - 1, C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t run = begin; run < end; ++run) {
      const std::int64_t first = runs.starts[static_cast<std::size_t>(run)];
      const std::int64_t last = runs.starts[static_cast<std::size_t>(run) + 1];
      const std::int64_t token = tokens[static_cast<std::size_t>(runs.order[static_cast<std::size_t>(first)])];
      check(token >= 0 && token < V, "a token is outside the embedding table");
      if (token == a.padding) continue;
      simd::each<A>(C, [&](std::int64_t c, auto lanes) {
        Vec<A> sum{};
        for (std::int64_t i = first; i < last; ++i)
          sum += simd::load<A>(dy + runs.order[static_cast<std::size_t>(i)] * C + c, lanes);
        write<A>(table + token * C + c, scale * sum, lanes, a.dtable.mode);
      });
    }
  });
}

template <class T>
void scatter(Ctx& ctx, const ScatterRows& a) {
  using A = Acc<T>;
  const std::int64_t C = a.x.shape[-1], height = a.y.t.shape.rows();
  T* y = a.y.t.as<T>();
  const T* x = a.x.as<T>();
  const std::int32_t* rows = a.rows.as<std::int32_t>();
  if (!a.y.adds()) clear(ctx, y, a.y.t.numel());
  for_rows(ctx, a.rows.numel(), C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (rows[i] == kNoRow) continue;
      check(rows[i] >= 0 && rows[i] < height, "scatter_rows: a row index is outside y");
      simd::each<A>(C, [&](std::int64_t c, auto lanes) {
        write<A>(y + rows[i] * C + c, simd::load<A>(x + i * C + c, lanes), lanes, a.y.mode);
      });
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Embedding& a) {
  dispatch_float(a.y.dtype, [&]<class Y>() {
    dispatch_storage(a.table.dtype,
                     [&]<class X>() { gather<Y, X>(ctx, a.y, {.x = a.table, .rows = a.tokens, .scale = a.scale}); });
  });
}
void run_cpu(Ctx& ctx, const EmbeddingGrad& a) {
  dispatch_float(a.dtable.t.dtype,
                 [&]<class W>() { dispatch_float(a.dy.dtype, [&]<class T>() { embedding_backward<W, T>(ctx, a); }); });
}
void run_cpu(Ctx& ctx, const GatherRows& a) {
  dispatch_float(a.y.dtype, [&]<class T>() { gather<T, T>(ctx, a.y, {.x = a.x, .rows = a.rows}); });
}
void run_cpu(Ctx& ctx, const ScatterRows& a) {
  if (!a.y.wanted()) return;
  dispatch_float(a.y.t.dtype, [&]<class T>() { scatter<T>(ctx, a); });
}

}  // namespace qtrain::ops
