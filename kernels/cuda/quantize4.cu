#include <limits>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/quantize.h"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;

/// A thread loads the codes of kOfThread elements at a time, and kTurns times before it uses any.
constexpr int kOfThread = 16, kTurns = 2, kOfBlock = static_cast<int>(kThreads) * kOfThread * kTurns;
/// The elements of two lanes, which exchange codes and share a scale.
constexpr int kOfPair = 2 * kOfThread;
constexpr int kOfWord = 8;

/// Element j of the eight in a word of codes.
__device__ __forceinline__ float expanded(const float* map, std::uint32_t codes, int j, float scale) {
  const int shift = 4 * (j ^ 1);  // the first element of a byte is in its high half
  return map[codes >> shift & 15u] * scale;
}
/// Where elements of w are stored, and words of eight: one after the other, or in rows with a gap between them.
struct InSequence {
  __device__ __forceinline__ std::int64_t of(std::int64_t i) const { return i; }
  __device__ __forceinline__ std::int64_t of_word(std::int64_t word) const { return word; }
};
struct InRows {
  std::uint32_t width, gap;

  __device__ __forceinline__ std::int64_t of(std::int64_t i) const {
    return i + std::int64_t{static_cast<std::uint32_t>(i) / width} * gap;
  }
  __device__ __forceinline__ std::int64_t of_word(std::int64_t word) const {
    return word + std::int64_t{static_cast<std::uint32_t>(word) / (width / kOfWord)} * (gap / kOfWord);
  }
};

/// Stores the eight elements of word number `word`.
template <class T>
__device__ __forceinline__ void expand_word(T* y, std::int64_t word, const float* map, std::uint32_t codes,
                                            float scale) {
  constexpr int kOfPart = kPackOf<T> / 4, kStores = kOfWord / kPackOf<T>;
#pragma unroll
  for (int store = 0; store < kStores; ++store) {
    std::uint32_t parts[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = store * kPackOf<T> + i * kOfPart;
      if constexpr (kOfPart == 2)
        parts[i] = pack_pair<T>(expanded(map, codes, j, scale), expanded(map, codes, j + 1, scale));
      else
        parts[i] = __float_as_uint(expanded(map, codes, j, scale));
    }
    reinterpret_cast<uint4*>(y)[word * kStores + store] = {parts[0], parts[1], parts[2], parts[3]};
  }
}

/// Loads all codes before the scales, and both before the first result is needed. A lane loads 8 bytes for 16 elements;
/// pairs of lanes exchange halves, so that the 16-byte stores of a pair are adjacent and fill sectors.
template <class T, class Place>
__global__ void __launch_bounds__(kThreads) dequantize4_words(T* y, std::int64_t n, FourBitParts w, Place place) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kOfBlock + static_cast<int>(threadIdx.x) * kOfThread;
  const int lane = static_cast<int>(threadIdx.x % 2);
  uint2 codes[kTurns] = {};
  FourBitParts::StoredScale scales[kTurns];
  const auto of_turn = [&](int k) { return first + k * static_cast<int>(kThreads) * kOfThread; };
  const auto is_whole = [&](std::int64_t i) { return i - lane * kOfThread + kOfPair <= n; };
#pragma unroll
  for (int k = 0; k < kTurns; ++k)
    if (is_whole(of_turn(k))) codes[k] = *reinterpret_cast<const uint2*>(w.codes + of_turn(k) / 2);
#pragma unroll
  for (int k = 0; k < kTurns; ++k)
    if (of_turn(k) < n) scales[k] = w.stored_scale(of_turn(k));
  const float* map = load_map(w);
#pragma unroll
  for (int k = 0; k < kTurns; ++k) {
    const std::int64_t i = of_turn(k);
    const std::uint32_t across = __shfl_xor_sync(kAllLanes, lane == 0 ? codes[k].y : codes[k].x, 1);
    if (i >= n) continue;
    const float scale = w.scale_of(scales[k]);
    if (is_whole(i)) {
      const std::int64_t word = i / kOfWord - lane;
      expand_word(y, place.of_word(word), map, lane == 0 ? codes[k].x : across, scale);
      expand_word(y, place.of_word(word + 2), map, lane == 0 ? across : codes[k].y, scale);
    } else {
#pragma unroll 1
      for (std::int64_t j = i; j < n && j < i + kOfThread; ++j) y[place.of(j)] = from_float<T>(map[w.code(j)] * scale);
    }
  }
}

/// One thread per byte of codes, for tensors with any alignment.
template <class T, class Place>
__global__ void __launch_bounds__(kThreads) dequantize4_bytes(T* y, std::int64_t n, FourBitParts w, Place place) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 2;
  const float* map = load_map(w);
  if (i >= n) return;
  const float scale = w.scale(i);
  for (std::int64_t j = i; j < n && j < i + 2; ++j) y[place.of(j)] = from_float<T>(map[w.code(j)] * scale);
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

template <class T, class Place>
void dequantize4_to(Ctx& ctx, const Dequantize4& a, const Place& place) {
  const FourBitParts w(a.w);
  const std::int64_t n = a.y.numel();
  check(n <= std::numeric_limits<std::uint32_t>::max(), "dequantize4: too many elements");
  T* y = a.y.as<T>();
  const auto run = [&](auto kernel, std::int64_t of_block) {
    const auto blocks = static_cast<unsigned>(ceil_div(n, of_block));
    launch(ctx, "dequantize4", kernel, {blocks, kThreads, sizeof(MapOfFour)}, y, n, w, place);
  };
  const bool rows_of_words = a.y_stride == 0 || (a.w.shape[1] % kOfWord == 0 && a.y_stride % kOfWord == 0);
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(y) % 16 == 0 && reinterpret_cast<std::uintptr_t>(w.codes) % 8 == 0;
  if (aligned && rows_of_words)
    run(dequantize4_words<T, Place>, kOfBlock);
  else
    run(dequantize4_bytes<T, Place>, std::int64_t{kThreads} * 2);
}

}  // namespace

void run_cuda(Ctx& ctx, const Dequantize4& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    if (a.y_stride == 0) return dequantize4_to<T>(ctx, a, InSequence{});
    const std::int64_t width = a.w.shape[1];
    dequantize4_to<T>(ctx, a,
                      InRows{static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(a.y_stride - width)});
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
