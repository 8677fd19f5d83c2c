#include "kernels/elementwise.h"

#include "core/rng.h"
#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;
using simd::each;
using simd::Vec;

template <class T>
void add_as(Ctx& ctx, const Add& a) {
  using A = Acc<T>;
  T* y = a.y.as<T>();
  const T *x0 = a.a.as<T>(), *x1 = a.b.as<T>();
  for_ranges(ctx, a.y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      simd::store<A>(y + i, simd::load<A>(x0 + i, lanes) + simd::load<A>(x1 + i, lanes), lanes);
    });
  });
}

template <class F>
void dispatch_storage(DType d, F&& f) {
  if (d == DType::f16) return f.template operator()<F16>();
  return dispatch_float(d, f);
}

template <class Ty, class Tx>
void copy_as(Ctx& ctx, const Copy& a) {
  using A = std::conditional_t<std::is_same_v<Ty, double> || std::is_same_v<Tx, double>, double, float>;
  Ty* y = a.y.t.as<Ty>();
  const Tx* x = a.x.as<Tx>();
  for_ranges(ctx, a.x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      write<A>(y + begin + j, simd::load<A>(x + begin + j, lanes), lanes, a.y.mode);
    });
  });
}

template <class T>
void dropout_as(Ctx& ctx, const Dropout& a) {
  using A = Acc<T>;
  T* y = a.y.t.as<T>();
  const T* x = a.x.as<T>();
  const auto seed = static_cast<std::uint64_t>(*a.seed.as<std::int64_t>());
  const A scale = static_cast<A>(1 / (1 - a.p));
  const auto p = static_cast<float>(a.p);
  for_ranges(ctx, a.x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += 4) {
      const auto words = philox(seed, a.stream, static_cast<std::uint64_t>(i / 4));
      for (std::int64_t j = 0; j < std::min<std::int64_t>(4, end - i); ++j) {
        const A kept = uniform(words[static_cast<std::size_t>(j)]) >= p ? static_cast<A>(x[i + j]) * scale : A{0};
        y[i + j] = static_cast<T>(a.y.adds() ? static_cast<A>(y[i + j]) + kept : kept);
      }
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Add& a) {
  dispatch_float(a.y.dtype, [&]<class T>() { add_as<T>(ctx, a); });
}

void run_cpu(Ctx& ctx, const Copy& a) {
  dispatch_storage(a.y.t.dtype,
                   [&]<class Ty>() { dispatch_storage(a.x.dtype, [&]<class Tx>() { copy_as<Ty, Tx>(ctx, a); }); });
}

void run_cpu(Ctx& ctx, const Fill& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    T* y = a.y.as<T>();
    const T value = static_cast<T>(static_cast<Acc<T>>(a.value));
    for_ranges(ctx, a.y.numel(), kGrain,
               [&](std::int64_t begin, std::int64_t end) { std::fill(y + begin, y + end, value); });
  });
}

void run_cpu(Ctx& ctx, const Dropout& a) {
  if (!a.y.wanted()) return;
  dispatch_float(a.x.dtype, [&]<class T>() { dropout_as<T>(ctx, a); });
}

}  // namespace qtrain::ops
