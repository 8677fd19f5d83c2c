#include "tests/cuda/warpgroup_kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/cuda/on_gpu.h"

namespace qtrain::testing {
namespace {

constexpr int kWarpgroup = 4 * kWarp;

struct alignas(1024) Memory {
  std::uint32_t words[6144];
};

struct Operands {
  float* d;
  const std::uint32_t *memory, *a;
  const float* before;
  std::uint64_t a_matrix, b_matrix;
  int words;
};

__device__ __forceinline__ void fill(Memory& m, const Operands& o) {
  for (int i = static_cast<int>(threadIdx.x); i < o.words; i += kWarpgroup) m.words[i] = o.memory[i];
  ptx::fence_proxy_async();
  __syncthreads();
}
template <int N>
__device__ __forceinline__ void finish(float (&d)[N][4], const Operands& o) {
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::wgmma_settle(d);
  for (int i = 0; i < 4 * N; ++i) o.d[static_cast<int>(threadIdx.x) * 4 * N + i] = d[i / 4][i % 4];
}

template <class T, int N, ptx::Major A, ptx::Major B>
__global__ void multiply_from_memory(Operands o) {
  Memory& m = shared_memory<Memory>();
  fill(m, o);
  const std::uint64_t begin = ptx::shared_address(&m) >> 4;
  float d[N][4];
  ptx::wgmma_fence();
  ptx::wgmma<T, B, ptx::Sum::starts, A>(d, o.a_matrix + begin, o.b_matrix + begin);
  finish(d, o);
}

template <class T, int N, ptx::Major B>
__global__ void multiply_from_registers(Operands o) {
  Memory& m = shared_memory<Memory>();
  fill(m, o);
  const int thread = static_cast<int>(threadIdx.x);
  float d[N][4];
  for (int i = 0; i < 4 * N; ++i) d[i / 4][i % 4] = o.before[thread * 4 * N + i];
  std::uint32_t a[1][4];
  for (int i = 0; i < 4; ++i) a[0][i] = o.a[4 * thread + i];
  ptx::wgmma_settle(d);
  ptx::wgmma_settle(a);
  ptx::wgmma_fence();
  ptx::wgmma<T, B, ptx::Sum::adds>(d, a[0], o.b_matrix + (ptx::shared_address(&m) >> 4));
  finish(d, o);
}

template <class T, int N, ptx::Major B>
auto multiplication(const WarpgroupTask& task) {
  return !task.a.empty()     ? multiply_from_registers<T, N, B>
         : task.a_transposed ? multiply_from_memory<T, N, ptx::Major::mn, B>
                             : multiply_from_memory<T, N, ptx::Major::k, B>;
}

template <class T, int N>
Reals multiply_as(Ctx& ctx, const WarpgroupTask& task) {
  OnGpu<std::uint32_t> memory(ctx, task.memory), a(ctx, task.a);
  OnGpu<float> before(ctx, task.before), d(ctx, std::size_t{kWarpgroup} * 4 * N);
  const auto kernel =
      task.b_transposed ? multiplication<T, N, ptx::Major::mn>(task) : multiplication<T, N, ptx::Major::k>(task);
  launch(ctx, "wgmma", kernel, {1, kWarpgroup, sizeof(Memory)},
         Operands{d.data(), memory.data(), a.data(), before.data(), task.a_matrix, task.b_matrix,
                  static_cast<int>(task.memory.size())});
  return d.values();
}

}  // namespace

Reals multiply_in_warpgroup(Ctx& ctx, const WarpgroupTask& task) {
  const bool narrow = task.columns == 64;
  if (task.type == MmaType::bf16) return narrow ? multiply_as<Bf16, 8>(ctx, task) : multiply_as<Bf16, 16>(ctx, task);
  return narrow ? multiply_as<F16, 8>(ctx, task) : multiply_as<F16, 16>(ctx, task);
}

}  // namespace qtrain::testing
