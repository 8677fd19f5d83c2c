#include "kernels/elementwise.h"

#include "core/rng.h"
#include "kernels/cuda/softcap.cuh"

namespace qtrain::ops {
namespace {

template <class T>
struct Adder {
  T* y;
  const T *a, *b;
  float scale;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float u[N], v[N];
    load_floats(u, a + i);
    load_floats(v, b + i);
#pragma unroll
    for (int j = 0; j < N; ++j) u[j] += scale * v[j];
    Target<T>{y}.template put_pack<N>(i, u);
  }
};

template <class To, class From>
struct Converter {
  Target<To> y;
  const From* x;
  float scale;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float v[N];
    load_floats(v, x + i);
#pragma unroll
    for (float& value : v) value *= scale;
    y.template put_pack<N>(i, v);
  }
};

template <class T>
struct Capper {
  T* y;
  const T* x;
  LogitCap cap;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float v[N];
    load_floats(v, x + i);
#pragma unroll
    for (float& z : v) z = cap.value<T>(z);
    Target<T>{y}.template put_pack<N>(i, v);
  }
};

template <class T>
struct Filler {
  T* y;
  T value;

  template <int N>
  __device__ void at(std::int64_t i) const {
#pragma unroll
    for (int j = 0; j < N; ++j) y[i + j] = value;
  }
};

/// One call of the generator yields four elements.
template <class T>
struct Dropper {
  Target<T> y;
  const T* x;
  const std::int64_t* seed;
  std::uint64_t stream;
  float p, scale;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const auto words = philox(static_cast<std::uint64_t>(*seed), stream, static_cast<std::uint64_t>(i / 4));
    float v[N];
    load_floats(v, x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float u = uniform(words[static_cast<std::size_t>(N == 4 ? j : i % 4)]);
      v[j] = u >= p ? v[j] * scale : 0.0f;
    }
    y.template put_pack<N>(i, v);
  }
};

template <class To, class From>
void convert(Ctx& ctx, const Copy& a) {
  const Converter<To, From> body{.y = target_of<To>(a.y), .x = a.x.as<From>(), .scale = static_cast<float>(a.scale)};
  using Wider = std::conditional_t<(sizeof(To) > sizeof(From)), To, From>;
  dispatch_packs<Wider>(aligned<Wider>(body.y.data, body.x),
                        [&]<int N>() { launch_elements<N>(ctx, "copy", a.x.numel(), body); });
}

}  // namespace

void run_cuda(Ctx& ctx, const Add& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    const Adder<T> body{.y = a.y.as<T>(), .a = a.a.as<T>(), .b = a.b.as<T>(), .scale = static_cast<float>(a.scale)};
    dispatch_packs<T>(aligned<T>(body.y, body.a, body.b),
                      [&]<int N>() { launch_elements<N>(ctx, "add", a.y.numel(), body); });
  });
}

void run_cuda(Ctx& ctx, const Copy& a) {
  if (a.y.t.dtype == DType::f64 && a.x.dtype == DType::f64 && !a.y.adds() && a.scale == 1)
    return ctx.stream().copy(a.y.t.data, a.x.data, a.x.bytes());
  dispatch_storage(a.y.t.dtype,
                   [&]<class To>() { dispatch_storage(a.x.dtype, [&]<class From>() { convert<To, From>(ctx, a); }); });
}

void run_cuda(Ctx& ctx, const CapLogits& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    const Capper<T> body{.y = a.y.as<T>(), .x = a.x.as<T>(), .cap = {a.scale, a.softcap}};
    dispatch_packs<T>(aligned<T>(body.y, body.x),
                      [&]<int N>() { launch_elements<N>(ctx, "cap_logits", a.x.numel(), body); });
  });
}

void run_cuda(Ctx& ctx, const Fill& a) {
  const auto run = [&]<class T>(T value) {
    launch_elements<4>(ctx, "fill", a.y.numel(), Filler<T>{.y = a.y.as<T>(), .value = value});
  };
  if (a.y.dtype == DType::f64) return run(a.value);
  dispatch_storage(a.y.dtype, [&]<class T>() { run(T(static_cast<float>(a.value))); });
}

void run_cuda(Ctx& ctx, const Dropout& a) {
  if (!a.y.wanted()) return;
  dispatch_storage(a.x.dtype, [&]<class T>() {
    const Dropper<T> body{.y = target_of<T>(a.y),
                          .x = a.x.as<T>(),
                          .seed = a.seed.as<std::int64_t>(),
                          .stream = a.stream,
                          .p = static_cast<float>(a.p),
                          .scale = static_cast<float>(1 / (1 - a.p))};
    if (aligned<T>(body.y.data, body.x) == Packs::yes)
      launch_elements<4>(ctx, "dropout", a.x.numel(), body);
    else
      launch_elements<1>(ctx, "dropout", a.x.numel(), body);
  });
}

}  // namespace qtrain::ops
