#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/half.h"
#include "emulator/thread.h"

/// The CUDA language for a C++ compiler: keywords, built-in variables and types, intrinsics. Counterpart of
/// kernels/cuda/native/target/intrinsics.cuh; the include path selects which of the two a kernel uses.
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (qtrain::emulation::thread_index())
#define blockIdx (qtrain::emulation::block_index())
#define blockDim (qtrain::emulation::block_extent())
#define gridDim (qtrain::emulation::grid_extent())

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT: as in CUDA
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

using std::max;
using std::min;

inline void __syncthreads(qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  qtrain::emulation::barrier(place);
}
inline int __syncthreads_or(int predicate, qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  return qtrain::emulation::counting_barrier(predicate != 0, place) > 0;
}
inline void __syncwarp(std::uint32_t mask = ~0u, qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  qtrain::emulation::warp_barrier(mask, place);
}

namespace qtrain::emulation {

template <class T>
T shuffled(std::uint32_t mask, T value, unsigned source, Place place) {
  static_assert(std::is_trivially_copyable_v<T>);
  T out = value;
  Shuffle s{.in = &value, .out = &out, .bytes = sizeof(T), .source = source};
  shuffle(mask, s, place);
  return out;
}

}  // namespace qtrain::emulation

template <class T>
T __shfl_sync(std::uint32_t mask, T value, int source, int width = 32,
              qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  const unsigned group = static_cast<unsigned>(width) - 1, lane = qtrain::emulation::lane();
  return qtrain::emulation::shuffled(mask, value, (lane & ~group) | (static_cast<unsigned>(source) & group), place);
}
template <class T>
T __shfl_xor_sync(std::uint32_t mask, T value, int bits, int width = 32,
                  qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  const unsigned group = static_cast<unsigned>(width) - 1, lane = qtrain::emulation::lane();
  const unsigned source = lane ^ static_cast<unsigned>(bits);
  return qtrain::emulation::shuffled(mask, value, (source | group) <= (lane | group) ? source : lane, place);
}
template <class T>
T __shfl_down_sync(std::uint32_t mask, T value, unsigned delta, int width = 32,
                   qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  const unsigned group = static_cast<unsigned>(width) - 1, lane = qtrain::emulation::lane();
  return qtrain::emulation::shuffled(mask, value, (lane & group) + delta <= group ? lane + delta : lane, place);
}
template <class T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned delta, int width = 32,
                 qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  const unsigned group = static_cast<unsigned>(width) - 1, lane = qtrain::emulation::lane();
  return qtrain::emulation::shuffled(mask, value, (lane & group) >= delta ? lane - delta : lane, place);
}
inline std::uint32_t __ballot_sync(std::uint32_t mask, int predicate,
                                   qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  return qtrain::emulation::ballot(mask, predicate != 0, place);
}
inline int __any_sync(std::uint32_t mask, int predicate,
                      qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  return qtrain::emulation::ballot(mask, predicate != 0, place) != 0;
}
inline int __all_sync(std::uint32_t mask, int predicate,
                      qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  return qtrain::emulation::ballot(mask, predicate == 0, place) == 0;
}

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v, qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  return qtrain::emulation::atomic(p, qtrain::emulation::AtomicOp::add, v, place);
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v, qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  return qtrain::emulation::atomic(p, qtrain::emulation::AtomicOp::max, v, place);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> desired,
            qtrain::emulation::Place place = qtrain::emulation::Place::current()) {
  return qtrain::emulation::compare_and_swap(p, expected, desired, place);
}

inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<std::uint32_t>(x)) + 1;
}
inline int __popc(std::uint32_t x) {
  return std::popcount(x);
}
inline std::uint32_t __float_as_uint(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline float __uint_as_float(std::uint32_t x) {
  return std::bit_cast<float>(x);
}

namespace qtrain {

/// The block's shared memory as a T, uninitialized. Launch with at least sizeof(T) bytes.
template <class T>
T& shared_memory(emulation::Place place = emulation::Place::current()) {
  static_assert(std::is_trivially_destructible_v<T>);
  return *static_cast<T*>(emulation::shared_memory(sizeof(T), place));
}

inline float to_float(float x) {
  return x;
}
inline float to_float(Bf16 x) {
  return x;
}
inline float to_float(F16 x) {
  return x;
}
/// a * b, not fused with a following addition.
inline float rounded_product(float a, float b) {
  float product = a * b;
  asm("" : "+x"(product));
  return product;
}
/// Rounds to nearest even.
template <class T>
T from_float(float x) {
  return T(x);
}

/// Converts two values to 16-bit T in one word, `low` in its lower half.
template <class T>
std::uint32_t pack_pair(float low, float high) {
  return T(low).bits | std::uint32_t{T(high).bits} << 16;
}

}  // namespace qtrain
