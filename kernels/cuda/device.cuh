#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <target/intrinsics.cuh>
#include <target/ptx.cuh>

#include "core/tensor.h"

/// What kernels are written with: vectors of storage elements, destinations, sizes.
namespace qtrain {

inline constexpr int kWarp = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

template <class A, class B>
__host__ __device__ constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

/// N neighbouring elements that are loaded and stored at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

/// The unsigned vector of the same size, which compilers move with one instruction.
template <std::size_t Bytes>
struct WordsOf;
template <>
struct WordsOf<16> {
  using type = uint4;
};
template <>
struct WordsOf<8> {
  using type = uint2;
};
template <>
struct WordsOf<4> {
  using type = std::uint32_t;
};
template <>
struct WordsOf<2> {
  using type = std::uint16_t;
};

/// p must be a multiple of the pack's size.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* p) {
  using Words = typename WordsOf<sizeof(T) * N>::type;
  union {
    Words words;
    Pack<T, N> pack;
  } u{*reinterpret_cast<const Words*>(p)};
  return u.pack;
}
template <int N, class T>
__device__ __forceinline__ void store_pack(T* p, const Pack<T, N>& pack) {
  using Words = typename WordsOf<sizeof(T) * N>::type;
  *reinterpret_cast<Words*>(p) = *reinterpret_cast<const Words*>(&pack);
}

/// A kernel's destination: y = v or y += v (the sum in f32). Null data: not wanted.
template <class T>
struct Target {
  T* data = nullptr;
  bool adds = false;

  __device__ void put(std::int64_t i, float v) const { data[i] = from_float<T>(adds ? to_float(data[i]) + v : v); }
  template <int N>
  __device__ void put_pack(std::int64_t i, const float (&v)[N]) const {
    Pack<T, N> out;
    if (adds) out = load_pack<N>(data + i);
#pragma unroll
    for (int j = 0; j < N; ++j) out.v[j] = from_float<T>(adds ? to_float(out.v[j]) + v[j] : v[j]);
    store_pack<N>(data + i, out);
  }
};
template <class T>
Target<T> target_of(const Sink& sink) {
  return sink.wanted() ? Target<T>{sink.t.template as<T>(), sink.adds()} : Target<T>{};
}

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));

/// Whether rows of `width` elements that begin at the pointers can be read in packs of 16 bytes.
template <class T, class... P>
bool packable(std::int64_t width, const P*... pointers) {
  return width % kPackOf<T> == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

/// Calls f.operator()<T>() with the C++ type of a dtype that CUDA kernels store values in.
template <class F>
decltype(auto) dispatch_storage(DType d, F&& f) {
  switch (d) {
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<Bf16>();
    case DType::f16: return f.template operator()<F16>();
    default:
      fail(ErrorKind::internal, {.cause = "CUDA kernels work on f32, bf16 and f16, not on " + std::string(name_of(d))});
  }
}

}  // namespace qtrain
