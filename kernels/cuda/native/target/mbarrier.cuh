#pragma once
#include <cstdint>

#include <target/tensor_map.h>
#include <target/wgmma.cuh>

/// The instructions of sm_90a with which a thread copies tiles for other warps: barriers in shared memory, copies of
/// boxes of tensors, and the division of registers among warpgroups.
namespace qtrain::ptx {

/// A barrier in shared memory (PTX manual, "mbarrier"). Its phases are numbered from 0. One is complete when the
/// barrier has received all arrivals, and copies have brought all bytes that it expects.
struct Mbarrier {
  std::uint64_t bits;
};

/// Initializes a barrier for `arrivals` per phase. Other threads, and copies, may use it after fence_proxy_async and a
/// barrier of the block.
__device__ __forceinline__ void init(Mbarrier& barrier, unsigned arrivals) {
  QTRAIN_ON_SM_90A(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
                                : "memory"));
}
/// Ends the use of a barrier, whose memory can then be used otherwise.
__device__ __forceinline__ void invalidate(Mbarrier& barrier) {
  QTRAIN_ON_SM_90A(asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory"));
}
/// What the calling thread has done happens before what others do after waiting for this phase.
__device__ __forceinline__ void arrive(Mbarrier& barrier) {
  QTRAIN_ON_SM_90A(asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory"));
}
/// Arrives, and makes the phase wait for so many bytes of copies.
__device__ __forceinline__ void arrive_and_expect(Mbarrier& barrier, unsigned bytes) {
  QTRAIN_ON_SM_90A(
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                   : "memory"));
}
/// Waits a while for the last phase with this parity; returns whether it is complete. Before phase 0, that with parity
/// 1 is.
__device__ __forceinline__ bool try_wait(Mbarrier& barrier, unsigned parity) {
  std::uint32_t complete = 0;
  QTRAIN_ON_SM_90A(
      asm volatile("{\n.reg .pred complete;\n"
                   "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                   "selp.b32 %0, 1, 0, complete;\n}"
                   : "=r"(complete)
                   : "r"(shared_address(&barrier)), "r"(parity)
                   : "memory"));
  return complete != 0;
}
__device__ __forceinline__ void wait(Mbarrier& barrier, unsigned parity) {
  while (!try_wait(barrier, parity)) {
  }
}

/// Starts copying the box of a tensor whose first element is at these coordinates. Elements outside the tensor become
/// zero. Called by one thread; `tile` is a multiple of 1,024. `full` receives the bytes of the box.
__device__ __forceinline__ void copy_box(void* tile, const target::TensorMap& map, const int (&at)[3], Mbarrier& full) {
  QTRAIN_ON_SM_90A(
      asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                   "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(tile)),
                   "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(shared_address(&full))
                   : "memory"));
}

/// Changes the number of registers of each thread; all warps of a warpgroup must call it. Raising waits until other
/// warpgroups have lowered theirs.
template <int Registers>
__device__ __forceinline__ void lower_registers() {
  QTRAIN_ON_SM_90A(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers)));
}
template <int Registers>
__device__ __forceinline__ void raise_registers() {
  QTRAIN_ON_SM_90A(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers)));
}

}  // namespace qtrain::ptx
