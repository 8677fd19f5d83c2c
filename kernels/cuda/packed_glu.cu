#include <numeric>

#include "kernels/cuda/glu_gate.cuh"
#include "kernels/cuda/reduce.cuh"

namespace qtrain::ops {
namespace {

/// Halves with an activation, or clamped pairs.
enum class Form : std::uint8_t { silu, gelu_tanh, clamped };

constexpr unsigned kGluRowThreads = 256;

/// The largest magnitude of values that are stored as T.
template <class T, int N>
__device__ __forceinline__ float largest_of(const float (&v)[N]) {
  float most = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) most = Larger{}(most, fabsf(v[j]));
  return to_float(from_float<T>(most));
}

/// A block calls body.largest_at for a row of `width` elements of y, and writes the row's largest magnitude.
template <int N, class Body>
__global__ void __launch_bounds__(kGluRowThreads) glu_rows(float* largest, std::int64_t width, Body body) {
  auto& partials = shared_memory<BlockPartials<float>>();
  const std::int64_t begin = std::int64_t{blockIdx.x} * width;
  float most = 0;
  for (std::int64_t column = std::int64_t{threadIdx.x} * N; column < width; column += std::int64_t{blockDim.x} * N)
    most = Larger{}(most, body.template largest_at<N>(begin + column));
  most = block_reduce(most, partials, Larger{}, 0.0f);
  if (threadIdx.x == 0) largest[blockIdx.x] = most;
}

/// Runs a body on the elements of y: by rows if their largest magnitudes are wanted.
template <int N, class Body>
void launch_glu(Ctx& ctx, const char* name, const Shape& y, const Tensor& largest, const Body& body) {
  if (!largest) return launch_elements<N>(ctx, name, y.numel(), body);
  launch(ctx, name, glu_rows<N, Body>, {static_cast<unsigned>(y.rows()), kGluRowThreads, sizeof(BlockPartials<float>)},
         largest.as<float>(), y[-1], body);
}

/// Locations in x [T, 2 F] of the gates and ups of N elements of y [T, F] in one row, starting at element i.
template <Form K>
struct Places {
  std::int64_t width;

  /// The index of the first gate; with halves, its up is `width` elements later.
  __device__ __forceinline__ std::int64_t gate(std::int64_t i) const {
    return K != Form::clamped ? i + i / width * width : 2 * i;
  }
  template <int N, class T>
  __device__ __forceinline__ void load(float (&g)[N], float (&u)[N], const T* x, std::int64_t i) const {
    if constexpr (K != Form::clamped) {
      load_floats(g, x + gate(i));
      load_floats(u, x + gate(i) + width);
    } else {
      float both[2 * N];
      load_floats(both, x + gate(i));
#pragma unroll
      for (int j = 0; j < N; ++j) g[j] = both[2 * j], u[j] = both[2 * j + 1];
    }
  }
  template <int N, class T>
  __device__ __forceinline__ void put(const Target<T>& to, const float (&g)[N], const float (&u)[N],
                                      std::int64_t i) const {
    if constexpr (K != Form::clamped) {
      to.template put_pack<N>(gate(i), g);
      to.template put_pack<N>(gate(i) + width, u);
    } else {
      float both[2 * N];
#pragma unroll
      for (int j = 0; j < N; ++j) both[2 * j] = g[j], both[2 * j + 1] = u[j];
      to.template put_pack<2 * N>(gate(i), both);
    }
  }
};

struct Clamp {
  float alpha, limit;

  /// Keeps NaN.
  __device__ __forceinline__ float gate(float g) const { return g > limit ? limit : g; }
  __device__ __forceinline__ float up(float u) const { return u > limit ? limit : u < -limit ? -limit : u; }
};

template <class T, Form K>
using GateOf = DeviceGate<T, K == Form::gelu_tanh ? Activation::gelu_tanh : Activation::silu>;

template <class T, Form K>
struct Forward {
  T* y;
  const T* x;
  Places<K> places;
  Clamp clamp;
  std::int64_t beside;  // elements between rows of y

  template <int N>
  __device__ void at(std::int64_t i) const {
    largest_at<N>(i);
  }
  /// The same; returns the largest magnitude of what it writes.
  template <int N>
  __device__ __forceinline__ float largest_at(std::int64_t i) const {
    float g[N], u[N];
    places.load(g, u, x, i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (K == Form::clamped) {
        const float c = clamp.gate(g[j]);
        u[j] = (clamp.up(u[j]) + 1.0f) * (c * sigmoid<T>(clamp.alpha * c));
      } else {
        u[j] *= g[j] * GateOf<T, K>(g[j]).s;
      }
    }
    std::int64_t to = i;
    if constexpr (K != Form::clamped) to += i / places.width * beside;
    Target<T>{y}.template put_pack<N>(to, u);
    return largest_of<T>(u);
  }
};

template <class T, Form K>
struct Backward {
  Target<T> dx;
  const T *dy, *x;
  Places<K> places;
  Clamp clamp;

  template <int N>
  __device__ void at(std::int64_t i) const {
    largest_at<N>(i);
  }
  /// As above.
  template <int N>
  __device__ __forceinline__ float largest_at(std::int64_t i) const {
    float d[N], g[N], u[N];
    load_floats(d, dy + i);
    places.load(g, u, x, i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (K == Form::clamped) {
        const float c = clamp.gate(g[j]), v = clamp.up(u[j]), s = sigmoid<T>(clamp.alpha * c);
        const bool gate_moves = c == g[j], up_moves = v == u[j];
        u[j] = up_moves ? d[j] * c * s : 0.0f;
        g[j] = gate_moves ? d[j] * (v + 1.0f) * s * (1.0f + clamp.alpha * c * (1.0f - s)) : 0.0f;
      } else {
        const GateOf<T, K> k(g[j]);
        const float dup = d[j] * g[j] * k.s;
        g[j] = d[j] * u[j] * k.slope();
        u[j] = dup;
      }
    }
    places.put(dx, g, u, i);
    return Larger{}(largest_of<T>(g), largest_of<T>(u));
  }
};

/// Calls f.operator()<K>() with the form of an op.
template <class Op, class F>
void dispatch_form(const Op& a, const F& f) {
  if (a.order == GluOrder::pairs) return f.template operator()<Form::clamped>();
  if (a.activation == Activation::silu) return f.template operator()<Form::silu>();
  f.template operator()<Form::gelu_tanh>();
}

template <class Op>
Clamp clamp_of(const Op& a) {
  return {static_cast<float>(a.alpha), static_cast<float>(a.limit)};
}

}  // namespace

void run_cuda(Ctx& ctx, const PackedGlu& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    dispatch_form(a, [&]<Form K>() {
      const std::int64_t width = a.y.shape[-1], beside = a.y_step() - width;
      const Forward<T, K> body{
          .y = a.y.as<T>(), .x = a.x.as<T>(), .places = {width}, .clamp = clamp_of(a), .beside = beside};
      dispatch_packs<T>(packable<T>(std::gcd(width, a.y_step()), body.y, body.x),
                        [&]<int N>() { launch_glu<N>(ctx, "packed_glu", a.y.shape, a.largest, body); });
    });
  });
}
void run_cuda(Ctx& ctx, const PackedGluGrad& a) {
  dispatch_storage(a.dy.dtype, [&]<class T>() {
    dispatch_form(a, [&]<Form K>() {
      const Backward<T, K> body{.dx = target_of<T>(a.dx),
                                .dy = a.dy.as<T>(),
                                .x = a.x.as<T>(),
                                .places = {a.dy.shape[-1]},
                                .clamp = clamp_of(a)};
      dispatch_packs<T>(packable<T>(a.dy.shape[-1], body.dx.data, body.dy, body.x),
                        [&]<int N>() { launch_glu<N>(ctx, "packed_glu_grad", a.dy.shape, a.largest, body); });
    });
  });
}

}  // namespace qtrain::ops
