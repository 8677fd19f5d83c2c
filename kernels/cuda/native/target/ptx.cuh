#pragma once
#include <nv/target>

#include <cstdint>

#include <target/mbarrier.cuh>

#include "core/fp8.h"

/// For instructions of sm_80 and later. Kernels that use them also compile for older GPUs, but must not be launched
/// there.
#define QTRAIN_FROM_SM_80(...) NV_IF_TARGET(NV_PROVIDES_SM_80, (__VA_ARGS__;), (__trap();))

/// Every PTX instruction that kernels use. All lanes of a warp must call these together, except for cp_async and
/// fp8_pair. Fragments are laid out as in the PTX manual, "Matrix Fragments for mma".
namespace qtrain::ptx {

/// The codes of two numbers in E4m3 or E5m2 (core/fp8.h), rounded as by encode_fp8: `low` in the low byte. A NaN may
/// lose its sign.
template <class F>
__device__ __forceinline__ std::uint32_t fp8_pair(float low, float high) {
  std::uint16_t pair = 0;
  if constexpr (F::kHasInfinity) {
    NV_IF_TARGET(NV_PROVIDES_SM_89,
                 (asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;"
                      : "=h"(pair)
                      : "f"(high), "f"(low));),
                 (pair = static_cast<std::uint16_t>(encode_fp8<F>(low) | encode_fp8<F>(high) << 8);))
  } else {
    NV_IF_TARGET(NV_PROVIDES_SM_89,
                 (asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
                      : "=h"(pair)
                      : "f"(high), "f"(low));),
                 (pair = static_cast<std::uint16_t>(encode_fp8<F>(low) | encode_fp8<F>(high) << 8);))
  }
  return pair;
}

/// d = a b + c, a [16, 16] row major, b [16, 8] column major, c and d [16, 8] in f32.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                         const float (&c)[4]) {
  QTRAIN_FROM_SM_80(asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3])));
}
__device__ __forceinline__ void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                        const float (&c)[4]) {
  QTRAIN_FROM_SM_80(asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3])));
}
/// Loads N matrices [8, 8] of 16-bit elements from shared memory: lane 8 i + j passes the address of row j of matrix i,
/// a multiple of 16. Register i receives elements (lane / 4, 2 (lane % 4) + {0, 1}) of matrix i.
template <int N>
__device__ __forceinline__ void ldmatrix(std::uint32_t (&r)[N], const void* row) {
  static_assert(N == 1 || N == 2 || N == 4);
  const std::uint32_t address = shared_address(row);
  if constexpr (N == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
  else if constexpr (N == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
/// Likewise for the transposed matrices.
template <int N>
__device__ __forceinline__ void ldmatrix_transposed(std::uint32_t (&r)[N], const void* row) {
  static_assert(N == 1 || N == 2 || N == 4);
  const std::uint32_t address = shared_address(row);
  if constexpr (N == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
  else if constexpr (N == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/// Starts copying `taken` <= Bytes bytes to shared memory and zero-filling the rest. Addresses are multiples of Bytes;
/// `global` must be valid if taken > 0. The calling thread sees the result after cp_async_wait, other threads after a
/// subsequent barrier.
template <int Bytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global, unsigned taken = Bytes) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 16) {
    QTRAIN_FROM_SM_80(asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                                   "l"(global), "r"(taken)
                                   : "memory"));
  } else {
    QTRAIN_FROM_SM_80(asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                                   "l"(global), "n"(Bytes), "r"(taken)
                                   : "memory"));
  }
}
/// Ends a group of copies.
__device__ __forceinline__ void cp_async_commit() {
  QTRAIN_FROM_SM_80(asm volatile("cp.async.commit_group;" ::: "memory"));
}
/// Waits until at most the latest `Pending` groups of the calling thread are incomplete.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
  QTRAIN_FROM_SM_80(asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory"));
}

/// Stores a value after everything that the calling thread did before, and that other threads of its block did before a
/// barrier, for a thread of another block that then reads it with load_acquire.
__device__ __forceinline__ void store_release(int* p, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(value) : "memory");
}
__device__ __forceinline__ int load_acquire(const int* p) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(p)) : "memory");
  return value;
}

/// 2^x, to about 2 units in the last place.
__device__ __forceinline__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Hides the origin of a value, so that what is computed from it stays where it is written: otherwise compilers keep
/// more addresses across a loop than there are registers.
__device__ __forceinline__ void opaque(int& x) {
  asm volatile("" : "+r"(x));
}

}  // namespace qtrain::ptx
