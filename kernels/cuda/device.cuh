#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <target/intrinsics.cuh>
#include <target/ptx.cuh>

#include "core/tensor.h"

/// Basics for kernels: vectors of storage elements, destinations, sizes.
namespace qtrain {

inline constexpr int kWarp = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

template <class A, class B>
__host__ __device__ constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

/// N adjacent elements that are loaded and stored together.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
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
template <>
struct WordsOf<1> {
  using type = std::uint8_t;
};

/// A pack, viewed as the words in which it is moved.
template <class T, int N>
union PackWords {
  static constexpr std::size_t kBytes = sizeof(T) * N, kChunk = kBytes < 16 ? kBytes : 16;
  using Word = typename WordsOf<kChunk>::type;

  Word words[kBytes / kChunk];
  Pack<T, N> pack;

  __device__ __forceinline__ PackWords() : words{} {}
};

/// p must be aligned to the pack's size, or to 16 for larger packs.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* p) {
  using Words = PackWords<T, N>;
  Words u;
#pragma unroll
  for (std::size_t i = 0; i < Words::kBytes / Words::kChunk; ++i)
    u.words[i] = reinterpret_cast<const typename Words::Word*>(p)[i];
  return u.pack;
}
template <int N, class T>
__device__ __forceinline__ void store_pack(T* p, const Pack<T, N>& pack) {
  using Words = PackWords<T, N>;
  Words u;
  u.pack = pack;
#pragma unroll
  for (std::size_t i = 0; i < Words::kBytes / Words::kChunk; ++i)
    reinterpret_cast<typename Words::Word*>(p)[i] = u.words[i];
}

/// The destination of a kernel: y = v or y += v (the sum in f32). Null data: not wanted.
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

enum class Packs : bool { no, yes };
/// Whether rows of `width` elements of T starting at the pointers can be moved in packs of kPackOf<T> elements.
template <class T, class... P>
Packs packable(std::int64_t width, const P*... pointers) {
  const bool aligned = width % kPackOf<T> == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
  return aligned ? Packs::yes : Packs::no;
}

/// Calls f.operator()<N>() with N = kPackOf<T> or 1.
template <class T, class F>
void dispatch_packs(Packs packs, const F& f) {
  if (packs == Packs::yes)
    f.template operator()<kPackOf<T>>();
  else
    f.template operator()<1>();
}

/// Calls f.operator()<T>() with the C++ type of a dtype that CUDA kernels support for storage.
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
