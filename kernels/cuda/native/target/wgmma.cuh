#pragma once
#include <nv/target>

#include <cstdint>
#include <type_traits>

#include "core/half.h"

/// The instructions of sm_90a with which a warpgroup (four adjacent warps; the number of the first is a multiple of 4)
/// multiplies matrices asynchronously (PTX manual, "Asynchronous Warpgroup Level Matrix Instructions"). All lanes of a
/// warpgroup must call them together, except fence_proxy_async. Kernels that use them also compile for other GPUs, but
/// must not be launched there.
#define QTRAIN_ON_SM_90A(...) NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (__VA_ARGS__;), (__trap();))

// Operands of inline assembly: the accumulators and their names.
#define QTRAIN_VALUES_4(d, j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define QTRAIN_VALUES_16(d, j) \
  QTRAIN_VALUES_4(d, j), QTRAIN_VALUES_4(d, j + 1), QTRAIN_VALUES_4(d, j + 2), QTRAIN_VALUES_4(d, j + 3)
#define QTRAIN_VALUES_32(d, j) QTRAIN_VALUES_16(d, j), QTRAIN_VALUES_16(d, j + 4)
#define QTRAIN_VALUES_64(d, j) QTRAIN_VALUES_32(d, j), QTRAIN_VALUES_32(d, j + 8)
#define QTRAIN_REGISTERS_32                                \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define QTRAIN_REGISTERS_64                                          \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"           \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
// wgmma.mma_async for `columns` with `values` accumulators; `a` is one operand or four in braces.
#define QTRAIN_WGMMA(columns, values, type, a, b, scale, transposed, ...)                                        \
  QTRAIN_ON_SM_90A(asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " scale ", 0;\n"                         \
                                "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type            \
                                " {" QTRAIN_REGISTERS_##values "}, " a ", " b ", adds, 1, 1, " transposed ";\n}" \
                                : QTRAIN_VALUES_##values(d, 0)                                                   \
                                : __VA_ARGS__))
#define QTRAIN_WGMMA_FROM_SHARED(columns, values, type, a, b, scale, transposed_a, transposed_b)         \
  QTRAIN_WGMMA(columns, values, type, a, b, scale, transposed_a ", " transposed_b, "l"(rows), "l"(tile), \
               "n"(S == Sum::adds), "n"(A == Major::mn), "n"(B == Major::mn))
#define QTRAIN_WGMMA_FROM_REGISTERS(columns, values, type, a, b, scale, transposed)                                    \
  QTRAIN_WGMMA(columns, values, type, a, b, scale, transposed, "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), \
               "l"(tile), "n"(S == Sum::adds), "n"(B == Major::mn))

namespace qtrain::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// Which index of an operand is contiguous in shared memory: k, which is summed over, or the other one, the rows of
/// A [64, 16] or the columns of B [16, N].
enum class Major : std::uint8_t { k, mn };
/// Whether a product is added to the accumulators or replaces them.
enum class Sum : std::uint8_t { starts, adds };

/// Starts d = rows tile (+ d) for a warpgroup, rows [64, 16] and tile [16, 8 N] of T, d [64, 8 N] in f32. `rows` and
/// `tile` are descriptors of matrices in shared memory. The accumulators must not be used until wgmma_wait. With w =
/// warp % 4, r = lane / 4, and p = lane % 4, d[j] holds the elements (16 w + r, 8 j + 2 p + {0, 1}) and (16 w + r + 8,
/// 8 j + 2 p + {0, 1}).
template <class T, Major B, Sum S, Major A = Major::k, int N>
__device__ __forceinline__ void wgmma(float (&d)[N][4], std::uint64_t rows, std::uint64_t tile) {
  static_assert(N == 8 || N == 16);
  if constexpr (N == 8 && std::is_same_v<T, Bf16>) {
    QTRAIN_WGMMA_FROM_SHARED(64, 32, "bf16", "%32", "%33", "%34", "%35", "%36");
  } else if constexpr (N == 8) {
    QTRAIN_WGMMA_FROM_SHARED(64, 32, "f16", "%32", "%33", "%34", "%35", "%36");
  } else if constexpr (std::is_same_v<T, Bf16>) {
    QTRAIN_WGMMA_FROM_SHARED(128, 64, "bf16", "%64", "%65", "%66", "%67", "%68");
  } else {
    QTRAIN_WGMMA_FROM_SHARED(128, 64, "f16", "%64", "%65", "%66", "%67", "%68");
  }
}
/// Likewise with `rows` in registers, which must not be used until wgmma_wait either. They hold the elements
/// (16 w + r + {0, 8, 0, 8}, 2 p + {0, 0, 8, 8} + {0, 1}), the lower one in the lower half.
template <class T, Major B, Sum S, int N>
__device__ __forceinline__ void wgmma(float (&d)[N][4], std::uint32_t (&rows)[4], std::uint64_t tile) {
  static_assert(N == 8 || N == 16);
  if constexpr (N == 8 && std::is_same_v<T, Bf16>) {
    QTRAIN_WGMMA_FROM_REGISTERS(64, 32, "bf16", "{%32,%33,%34,%35}", "%36", "%37", "%38");
  } else if constexpr (N == 8) {
    QTRAIN_WGMMA_FROM_REGISTERS(64, 32, "f16", "{%32,%33,%34,%35}", "%36", "%37", "%38");
  } else if constexpr (std::is_same_v<T, Bf16>) {
    QTRAIN_WGMMA_FROM_REGISTERS(128, 64, "bf16", "{%64,%65,%66,%67}", "%68", "%69", "%70");
  } else {
    QTRAIN_WGMMA_FROM_REGISTERS(128, 64, "f16", "{%64,%65,%66,%67}", "%68", "%69", "%70");
  }
}

/// Orders earlier accesses to registers before products that use them. Required before the first product, and whenever
/// accumulators or `rows` in registers have been used in between.
__device__ __forceinline__ void wgmma_fence() {
  QTRAIN_ON_SM_90A(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"));
}
/// Ends a group of products.
__device__ __forceinline__ void wgmma_commit() {
  QTRAIN_ON_SM_90A(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"));
}
/// Waits until at most the latest `Pending` groups of the warp are incomplete.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  QTRAIN_ON_SM_90A(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory"));
}
/// Keeps the compiler, which does not know that products change registers asynchronously, from moving uses of `values`
/// across this call. Needed before wgmma_fence and after wgmma_wait.
template <int N>
__device__ __forceinline__ void wgmma_settle(float (&values)[N][4]) {
#pragma unroll
  for (int j = 0; j < N; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(values[j][e])::"memory");
}
template <int N>
__device__ __forceinline__ void wgmma_settle(std::uint32_t (&values)[N][4]) {
#pragma unroll
  for (int j = 0; j < N; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+r"(values[j][e])::"memory");
}
/// Makes what the calling thread has written to shared memory, also with cp.async, visible to products after the next
/// barrier.
__device__ __forceinline__ void fence_proxy_async() {
  QTRAIN_ON_SM_90A(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"));
}

}  // namespace qtrain::ptx
