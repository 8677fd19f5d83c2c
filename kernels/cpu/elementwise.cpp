#include "kernels/elementwise.h"

#include "kernels/cpu/loops.h"
#include "kernels/cpu/philox_lanes.h"
#include "kernels/cpu/softcap.h"

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
  const Vec<A> scale = simd::broadcast(static_cast<A>(a.scale));
  for_ranges(ctx, a.y.numel(), kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      simd::store<A>(y + i, simd::load<A>(x0 + i, lanes) + scale * simd::load<A>(x1 + i, lanes), lanes);
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
  const Vec<A> scale = simd::broadcast(static_cast<A>(a.scale));
  for_ranges(ctx, a.x.numel(), kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      write<A>(y + begin + j, scale * simd::load<A>(x + begin + j, lanes), lanes, a.y.mode);
    });
  });
}

template <class T>
void cap_as(Ctx& ctx, const CapLogits& a) {
  using A = Acc<T>;
  T* y = a.y.as<T>();
  const T* x = a.x.as<T>();
  const simd::LogitCap<A> cap = simd::logit_cap<A>(a.scale, a.softcap);
  for_ranges(ctx, a.x.numel(), kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      simd::store<A>(y + begin + j, cap.value(simd::load<A>(x + begin + j, lanes)), lanes);
    });
  });
}

template <class T>
void dropout_as(Ctx& ctx, const Dropout& a) {
  using A = Acc<T>;
  T* y = a.y.t.as<T>();
  const T* x = a.x.as<T>();
  const auto seed = static_cast<std::uint64_t>(*a.seed.as<std::int64_t>());
  const Vec<A> scale = simd::broadcast(static_cast<A>(1 / (1 - a.p)));
  const auto p = static_cast<float>(a.p);
  for_ranges(ctx, a.x.numel(), kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t words[simd::kPhiloxWords];
    float keep[simd::kPhiloxWords];
    for (std::int64_t i = begin; i < end; i += simd::kPhiloxWords) {
      simd::philox_lanes(seed, a.stream, static_cast<std::uint64_t>(i / 4), words);
      simd::keep_lanes(words, p, keep);
      each<A>(std::min<std::int64_t>(simd::kPhiloxWords, end - i), [&](std::int64_t j, auto lanes) {
        const Vec<A> kept = simd::select(simd::load<A>(keep + j, simd::FullLanes<A>{}) != Vec<A>{},
                                         simd::load<A>(x + i + j, lanes) * scale, Vec<A>{});
        write<A>(y + i + j, kept, lanes, a.y.mode);
      });
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

void run_cpu(Ctx& ctx, const CapLogits& a) {
  dispatch_float(a.y.dtype, [&]<class T>() { cap_as<T>(ctx, a); });
}

void run_cpu(Ctx& ctx, const Fill& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    T* y = a.y.as<T>();
    const T value = static_cast<T>(static_cast<Acc<T>>(a.value));
    for_ranges(ctx, a.y.numel(), kBlockSize,
               [&](std::int64_t begin, std::int64_t end) { std::fill(y + begin, y + end, value); });
  });
}

void run_cpu(Ctx& ctx, const Dropout& a) {
  if (!a.y.wanted()) return;
  dispatch_float(a.x.dtype, [&]<class T>() { dropout_as<T>(ctx, a); });
}

}  // namespace qtrain::ops
