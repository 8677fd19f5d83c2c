#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/quantize.h"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;

/// Packs of N elements that a thread expands; those of a block are adjacent, so that the stores of a warp are, too.
constexpr int kPacks = 2;

/// A pack has a common scale: 8 elements, or the 2 of a byte. All loads are issued before the first result is needed.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) dequantize4_elements(T* y, std::int64_t n, FourBitParts w) {
  const std::int64_t first = (std::int64_t{blockIdx.x} * kPacks * kThreads + threadIdx.x) * N;
  Pack<std::uint8_t, N / 2> codes[kPacks];
  FourBitParts::StoredScale scales[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const std::int64_t i = first + std::int64_t{k} * kThreads * N;
    if (i + N <= n) codes[k] = load_codes<N>(w.codes + i / 2);
    if (i < n) scales[k] = w.stored_scale(i);
  }
  const float* map = load_map(w);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const std::int64_t i = first + std::int64_t{k} * kThreads * N;
    if (i >= n) return;
    const float scale = w.scale_of(scales[k]);
    if (i + N > n) {
      for (std::int64_t j = i; j < n; ++j) y[j] = from_float<T>(map[w.code(j)] * scale);
      return;
    }
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      out.v[2 * j] = from_float<T>(map[codes[k].v[j] >> 4] * scale);
      out.v[2 * j + 1] = from_float<T>(map[codes[k].v[j] & 15] * scale);
    }
    if constexpr (N == 8)
      store_pack<N>(y + i, out);
    else
      y[i] = out.v[0], y[i + 1] = out.v[1];
  }
}

struct Coding {
  std::uint8_t* codes;
  float* absmax;
  std::int64_t n;
  int blocksize;
  float bounds[15];
  std::uint64_t order;  ///< sixteen 4-bit codes, the first in the lowest bits
};

__device__ __forceinline__ unsigned code_of(const Coding& a, float v) {
  v = fminf(fmaxf(v, -1.0f), 1.0f);
  unsigned place = 0;
#pragma unroll
  for (int i = 0; i < 15; ++i) place += a.bounds[i] < v ? 1u : 0u;
  return static_cast<unsigned>(a.order >> (4 * place)) & 15u;
}

/// One warp per block of elements; each lane takes the two of a byte.
template <class T>
__global__ void __launch_bounds__(kThreads) quantize4_blocks(Coding a, const T* x) {
  const std::int64_t block = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, begin = block * a.blocksize;
  if (begin >= a.n) return;
  const int count = static_cast<int>(min(a.n - begin, std::int64_t{a.blocksize}));
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  std::uint32_t bits = 0;  // bits of the largest magnitude; NaN has larger bits than any other value
  for (int i = lane; i < count; i += kWarp) bits = max(bits, __float_as_uint(to_float(x[begin + i])) & 0x7fffffffu);
  const float absmax = __uint_as_float(warp_reduce(bits, Most{}));
  const float scale = absmax < kLeastScale ? kLeastScale : absmax, inverse = 1.0f / scale;
  const bool full = count == a.blocksize;
  const auto scaled = [&](int i) {
    const float v = i < count ? to_float(x[begin + i]) : 0.0f;
    return full ? v * inverse : v / scale;  // a shorter last block divides by its scale
  };
  for (int i = 2 * lane; i < count; i += 2 * kWarp)
    a.codes[(begin + i) / 2] = static_cast<std::uint8_t>(code_of(a, scaled(i)) << 4 | code_of(a, scaled(i + 1)));
  if (lane == 0) a.absmax[block] = full ? absmax : scale;
}

}  // namespace

void run_cuda(Ctx& ctx, const Dequantize4& a) {
  const FourBitParts w(a.w);
  const std::int64_t n = a.y.numel();
  dispatch_storage(a.y.dtype, [&]<class T>() {
    T* y = a.y.as<T>();
    const auto run = [&]<int N>() {
      const auto blocks = static_cast<unsigned>(ceil_div(n, std::int64_t{kThreads} * N * kPacks));
      launch(ctx, "dequantize4", dequantize4_elements<T, N>, {blocks, kThreads, sizeof(MapOfFour)}, y, n, w);
    };
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(y) % 16 == 0 && reinterpret_cast<std::uintptr_t>(w.codes) % 4 == 0;
    return aligned ? run.template operator()<8>() : run.template operator()<2>();
  });
}

void run_cuda(Ctx& ctx, const Quantize4& a) {
  Coding coding{.codes = a.codes.as<std::uint8_t>(),
                .absmax = a.absmax.as<float>(),
                .n = a.x.numel(),
                .blocksize = a.blocksize,
                .bounds = {},
                .order = 0};
  const FourBitOrder order = order_of(a.type);
  std::copy(order.bounds.begin(), order.bounds.end(), coding.bounds);
  for (std::size_t i = 0; i < 16; ++i) coding.order |= std::uint64_t{order.order[i]} << (4 * i);
  const auto blocks = static_cast<unsigned>(ceil_div(a.absmax.numel(), std::int64_t{kWarps}));
  dispatch_storage(a.x.dtype, [&]<class T>() {
    launch(ctx, "quantize4", quantize4_blocks<T>, {blocks, kThreads}, coding, a.x.as<T>());
  });
}

}  // namespace qtrain::ops
