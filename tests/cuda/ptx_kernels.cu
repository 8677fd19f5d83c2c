#include "tests/cuda/ptx_kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/cuda/on_gpu.h"

namespace qtrain::testing {
namespace {

template <MmaType K>
__global__ void multiply_once(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c) {
  const unsigned lane = threadIdx.x;
  std::uint32_t fa[4], fb[2];
  float fc[4], fd[4];
  for (int i = 0; i < 4; ++i) fa[i] = a[4 * lane + i], fc[i] = c[4 * lane + i];
  for (int i = 0; i < 2; ++i) fb[i] = b[2 * lane + i];
  if constexpr (K == MmaType::bf16)
    ptx::mma_bf16(fd, fa, fb, fc);
  else
    ptx::mma_f16(fd, fa, fb, fc);
  for (int i = 0; i < 4; ++i) d[4 * lane + i] = fd[i];
}

struct alignas(16) Matrices {
  std::uint16_t rows[32][8];
};

template <int N, Layout L>
__global__ void load_once(std::uint32_t* y, const std::uint16_t* x) {
  Matrices& m = shared_memory<Matrices>();
  const unsigned lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) m.rows[lane][i] = lane < 8 * N ? x[8 * lane + i] : std::uint16_t{0};
  __syncthreads();
  std::uint32_t r[N];
  if constexpr (L == Layout::plain)
    ptx::ldmatrix(r, m.rows[lane]);
  else
    ptx::ldmatrix_transposed(r, m.rows[lane]);
  for (int i = 0; i < N; ++i) y[N * lane + i] = r[i];
}

struct alignas(16) Buffer {
  std::uint32_t words[32 * 4];
};

template <int Bytes>
__global__ void copy_once(std::uint32_t* y, const std::uint32_t* x, int taken) {
  Buffer& buffer = shared_memory<Buffer>();
  constexpr int kWords = Bytes / 4;
  const unsigned lane = threadIdx.x;
  ptx::cp_async<Bytes>(&buffer.words[lane * kWords], x + lane * kWords, static_cast<unsigned>(taken));
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  const unsigned other = kWarp - 1 - lane;  // reads what another lane has copied
  for (int i = 0; i < kWords; ++i) y[other * kWords + i] = buffer.words[other * kWords + i];
}

constexpr int kExchanges = 9;

__global__ void exchange_all(int* y) {
  const int lane = static_cast<int>(threadIdx.x);
  int* results[kExchanges];
  for (int i = 0; i < kExchanges; ++i) results[i] = y + i * kWarp + lane;
  *results[0] = __shfl_sync(kAllLanes, lane, 5);
  *results[1] = __shfl_sync(kAllLanes, lane, 9, 8);
  *results[2] = __shfl_xor_sync(kAllLanes, lane, 3);
  *results[3] = __shfl_down_sync(kAllLanes, lane, 3);
  *results[4] = __shfl_up_sync(kAllLanes, lane, 3, 16);
  *results[5] = static_cast<int>(__ballot_sync(kAllLanes, lane % 3 == 0));
  *results[6] = __any_sync(kAllLanes, lane == 31) + 2 * __any_sync(kAllLanes, lane == 32);
  *results[7] = __all_sync(kAllLanes, lane < 32) + 2 * __all_sync(kAllLanes, lane < 31);
  int half = lane;
  if (lane < 16) half = __shfl_xor_sync(0x0000ffffu, lane, 1);
  *results[8] = half;
}

__global__ void count_threads(int* y) {
  const int number = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(y, number);
  atomicMax(y + 1, number);
  if (atomicCAS(y + 3, 0, 1) == 0) atomicAdd(y + 2, 1);
}

template <int N>
Words load_in(Ctx& ctx, Layout layout, const std::vector<std::uint16_t>& rows) {
  OnGpu<std::uint16_t> x(ctx, rows);
  OnGpu<std::uint32_t> y(ctx, std::size_t{N} * kWarp);
  launch(ctx, "ldmatrix", layout == Layout::plain ? load_once<N, Layout::plain> : load_once<N, Layout::transposed>,
         {1, kWarp, sizeof(Matrices)}, y.data(), x.data());
  return y.values();
}

}  // namespace

Reals multiply(Ctx& ctx, MmaType kind, const Fragments& in) {
  OnGpu<std::uint32_t> a(ctx, in.a), b(ctx, in.b);
  OnGpu<float> c(ctx, in.c), d(ctx, in.c.size());
  const auto kernel = kind == MmaType::bf16 ? multiply_once<MmaType::bf16> : multiply_once<MmaType::f16>;
  launch(ctx, "mma", kernel, {1, kWarp}, d.data(), a.data(), b.data(), c.data());
  return d.values();
}

Words load_matrices(Ctx& ctx, int count, Layout layout, const std::vector<std::uint16_t>& rows) {
  if (count == 1) return load_in<1>(ctx, layout, rows);
  return count == 2 ? load_in<2>(ctx, layout, rows) : load_in<4>(ctx, layout, rows);
}

Words copy_chunks(Ctx& ctx, Chunks chunks, const Words& x) {
  OnGpu<std::uint32_t> from(ctx, x), to(ctx, x.size());
  const auto kernel = chunks.bytes == 4 ? copy_once<4> : chunks.bytes == 8 ? copy_once<8> : copy_once<16>;
  launch(ctx, "cp_async", kernel, {1, kWarp, sizeof(Buffer)}, to.data(), from.data(), chunks.taken);
  return to.values();
}

std::vector<std::vector<int>> exchanged(Ctx& ctx) {
  OnGpu<int> y(ctx, std::size_t{kExchanges} * kWarp);
  launch(ctx, "exchange", exchange_all, {1, kWarp}, y.data());
  const std::vector<int> all = y.values();
  std::vector<std::vector<int>> results;
  for (auto it = all.begin(); it != all.end(); it += kWarp) results.emplace_back(it, it + kWarp);
  return results;
}

std::vector<int> counted(Ctx& ctx, int blocks) {
  OnGpu<int> y(ctx, std::vector<int>(4));
  launch(ctx, "atomics", count_threads, {static_cast<unsigned>(blocks), kWarp}, y.data());
  return y.values();
}

}  // namespace qtrain::testing
