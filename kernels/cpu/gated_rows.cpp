#include "kernels/gated_rows.h"

#include <cmath>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::Vec;

template <class T>
simd::Acc<T> share_of(const T& gate) {
  using A = Acc<T>;
  return A{1} / (A{1} + std::exp(-static_cast<A>(gate)));
}

template <class T>
void forward(Ctx& ctx, const GatedRows& o) {
  using A = Acc<T>;
  const std::int64_t C = o.y.shape[-1];
  T* y = o.y.as<T>();
  const T *a = o.a.as<T>(), *b = o.b.as<T>(), *gate = o.gate.as<T>();
  for_rows(ctx, o.y.shape.rows(), C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const Vec<A> share = simd::broadcast(share_of(gate[t]));
      simd::each<A>(C, [&](std::int64_t c, auto lanes) {
        const std::int64_t i = t * C + c;
        simd::store<A>(y + i, simd::load<A>(a + i, lanes) + share * simd::load<A>(b + i, lanes), lanes);
      });
    }
  });
}

template <class T>
void backward(Ctx& ctx, const GatedRowsGrad& o) {
  using A = Acc<T>;
  const std::int64_t C = o.dy.shape[-1];
  T* db = o.db.wanted() ? o.db.t.as<T>() : nullptr;
  const T *dy = o.dy.as<T>(), *b = o.b.as<T>(), *gate = o.gate.as<T>();
  for_rows(ctx, o.dy.shape.rows(), C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const A share = share_of(gate[t]);
      if (o.dgate.wanted()) {
        T& dgate = o.dgate.t.as<T>()[t];
        const A slope = share * (A{1} - share) * simd::dot<A>(dy + t * C, b + t * C, C);
        dgate = T(o.dgate.adds() ? static_cast<A>(dgate) + slope : slope);
      }
      if (!db) continue;
      const Vec<A> factor = simd::broadcast(share);
      simd::each<A>(C, [&](std::int64_t c, auto lanes) {
        const std::int64_t i = t * C + c;
        write<A>(db + i, factor * simd::load<A>(dy + i, lanes), lanes, o.db.mode);
      });
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const GatedRows& a) {
  dispatch_float(a.y.dtype, [&]<class T>() { forward<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const GatedRowsGrad& a) {
  dispatch_float(a.dy.dtype, [&]<class T>() { backward<T>(ctx, a); });
}

}  // namespace qtrain::ops
