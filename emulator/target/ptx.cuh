#pragma once
#include <cmath>
#include <cstdint>

#include <target/mbarrier.cuh>

#include "core/fp8.h"
#include "emulator/thread.h"

/// Counterpart of kernels/cuda/native/target/ptx.cuh, where each instruction is documented.
namespace qtrain::ptx {

using emulation::Place;

template <class F>
std::uint32_t fp8_pair(float low, float high) {
  return encode_fp8<F>(low) | static_cast<std::uint32_t>(encode_fp8<F>(high)) << 8;
}

inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const float (&c)[4],
                     Place place = Place::current()) {
  emulation::Mma args{.kind = emulation::MmaKind::bf16_k16, .d = d, .a = a, .b = b, .c = c};
  emulation::mma(args, place);
}
inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const float (&c)[4],
                    Place place = Place::current()) {
  emulation::Mma args{.kind = emulation::MmaKind::f16_k16, .d = d, .a = a, .b = b, .c = c};
  emulation::mma(args, place);
}
template <int N>
void ldmatrix(std::uint32_t (&r)[N], const void* row, Place place = Place::current()) {
  emulation::LoadMatrix args{.registers = r, .count = N, .transposed = false, .row = row};
  emulation::load_matrix(args, place);
}
template <int N>
void ldmatrix_transposed(std::uint32_t (&r)[N], const void* row, Place place = Place::current()) {
  emulation::LoadMatrix args{.registers = r, .count = N, .transposed = true, .row = row};
  emulation::load_matrix(args, place);
}

template <int Bytes>
void cp_async(void* shared, const void* global, unsigned taken = Bytes, Place place = Place::current()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  emulation::copy_async({.to = shared, .from = global, .bytes = Bytes, .taken = taken}, place);
}
inline void cp_async_commit() {
  emulation::commit_copies();
}
template <int Pending>
void cp_async_wait() {
  emulation::wait_copies(Pending);
}

inline void store_release(int* p, int value, Place place = Place::current()) {
  emulation::store_release(p, value, place);
}
inline int load_acquire(const int* p, Place place = Place::current()) {
  return emulation::load_acquire(p, place);
}

inline float exp2(float x) {
  return std::exp2(x);
}

inline void opaque(int&) {}

}  // namespace qtrain::ptx
