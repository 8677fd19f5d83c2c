#pragma once
#include <cstdint>
#include <type_traits>

#include "core/half.h"
#include "emulator/thread.h"

/// Counterpart of kernels/cuda/native/target/wgmma.cuh, where each instruction is documented. Accumulators and rows in
/// registers must exist until the wait.
namespace qtrain::ptx {

using emulation::Place;

inline std::uint32_t shared_address(const void* p) {
  return emulation::shared_offset(p);
}

enum class Major : std::uint8_t { k, mn };
enum class Sum : std::uint8_t { starts, adds };

template <class T, Major B, Sum S, int N>
emulation::WarpgroupMma product_of(float (&d)[N][4], std::uint64_t tile) {
  return {.kind = std::is_same_v<T, Bf16> ? emulation::MmaKind::bf16_k16 : emulation::MmaKind::f16_k16,
          .columns = 8 * N,
          .adds = S == Sum::adds,
          .b_transposed = B == Major::mn,
          .d = {.base = d},
          .b_matrix = tile};
}

template <class T, Major B, Sum S, Major A = Major::k, int N>
void wgmma(float (&d)[N][4], std::uint64_t rows, std::uint64_t tile, Place place = Place::current()) {
  emulation::WarpgroupMma product = product_of<T, B, S>(d, tile);
  product.a_matrix = rows;
  product.a_transposed = A == Major::mn;
  emulation::start_product(product, place);
}
template <class T, Major B, Sum S, int N>
void wgmma(float (&d)[N][4], std::uint32_t (&rows)[4], std::uint64_t tile, Place place = Place::current()) {
  emulation::WarpgroupMma product = product_of<T, B, S>(d, tile);
  product.a.base = rows;
  emulation::start_product(product, place);
}

inline void wgmma_fence(Place place = Place::current()) {
  emulation::fence_warpgroup(place);
}
inline void wgmma_commit(Place place = Place::current()) {
  emulation::commit_products(place);
}
template <int Pending>
void wgmma_wait(Place place = Place::current()) {
  emulation::wait_products(Pending, place);
}
template <class T, int N>
void wgmma_settle(T (&)[N][4]) {}
inline void fence_proxy_async(Place place = Place::current()) {
  emulation::fence_async_proxy(place);
}

}  // namespace qtrain::ptx
