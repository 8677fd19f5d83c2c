#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/quantize.h"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp, kSumThreads = 1024;

struct Coding8 {
  std::uint8_t* codes;
  float* absmax;
  const float *x, *map, *offset;  ///< offset may be null: 0
  std::int64_t n;
  int blocksize;
  CodeRule rule;
};

struct MapOfEight {
  float values[256];
};
static_assert(kThreads == 256, "each thread loads a value of the map");

/// One warp per block of elements.
__global__ void __launch_bounds__(kThreads) quantize8_blocks(Coding8 a) {
  auto& map = shared_memory<MapOfEight>();
  map.values[threadIdx.x] = a.map[threadIdx.x];
  __syncthreads();
  const std::int64_t block = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, begin = block * a.blocksize;
  if (begin >= a.n) return;
  const int count = static_cast<int>(min(a.n - begin, std::int64_t{a.blocksize}));
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float offset = a.offset ? *a.offset : 0.0f;
  float largest = 0;
  for (int i = lane; i < count; i += kWarp) largest = fmaxf(largest, fabsf(a.x[begin + i] - offset));
  largest = __uint_as_float(warp_reduce(__float_as_uint(largest), Most{}));
  const float inverse = 1.0f / largest;
  for (int i = lane; i < count; i += kWarp) {
    const float scaled = (a.x[begin + i] - offset) * inverse;
    const int code = nearest_code(map.values, a.rule == CodeRule::grid ? on_grid(scaled) : scaled);
    a.codes[begin + i] = static_cast<std::uint8_t>(largest == 0 ? 0 : code);
  }
  if (lane == 0) a.absmax[block] = largest;
}

/// Runs in one block: the mean, summed in f64.
__global__ void __launch_bounds__(kSumThreads) absmax_mean(const float* absmax, std::int64_t n, float* mean) {
  auto& partials = shared_memory<BlockPartials<double>>();
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kSumThreads) sum += static_cast<double>(absmax[i]);
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) *mean = static_cast<float>(sum / static_cast<double>(n));
}

struct Decoder8 {
  float* y;
  const std::uint8_t* codes;
  const float *absmax, *map;
  int blocksize;

  template <int N>
  __device__ void at(std::int64_t i) const {
#pragma unroll
    for (int j = 0; j < N; ++j) y[i + j] = map[codes[i + j]] * absmax[(i + j) / blocksize];
  }
};

template <class T>
struct RowDecoder {
  T* y;
  const std::int8_t* codes;
  const float* scale;
  std::int64_t width, gap;  // elements between rows of y

  template <int N>
  __device__ void at(std::int64_t i) const {
    constexpr float kUnit = 7.874015718698502e-3f;  // 1 / 127 as in bitsandbytes
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const std::int64_t row = (i + j) / width;
      y[i + j + row * gap] = from_float<T>(static_cast<float>(codes[i + j]) * scale[row] * kUnit);
    }
  }
};

void quantize(Ctx& ctx, const char* name, const Coding8& coding) {
  const auto blocks = static_cast<unsigned>(ceil_div(blocks_of(coding.n, coding.blocksize), std::int64_t{kWarps}));
  launch(ctx, name, quantize8_blocks, {blocks, kThreads, sizeof(MapOfEight)}, coding);
}

}  // namespace

void run_cuda(Ctx& ctx, const Quantize8& a) {
  quantize(ctx, "quantize8",
           {.codes = a.codes.as<std::uint8_t>(),
            .absmax = a.absmax.as<float>(),
            .x = a.x.as<float>(),
            .map = a.map.as<float>(),
            .offset = nullptr,
            .n = a.x.numel(),
            .blocksize = a.blocksize,
            .rule = a.rule});
}

void run_cuda(Ctx& ctx, const NestAbsmax& a) {
  auto* offset = a.offset.as<float>();
  const std::int64_t n = a.absmax.numel();
  launch(ctx, "absmax_mean", absmax_mean, {1, kSumThreads, sizeof(BlockPartials<double>)}, a.absmax.as<float>(), n,
         offset);
  quantize(ctx, "nest_absmax",
           {.codes = a.codes.as<std::uint8_t>(),
            .absmax = a.nested_absmax.as<float>(),
            .x = a.absmax.as<float>(),
            .map = a.map.as<float>(),
            .offset = offset,
            .n = n,
            .blocksize = a.blocksize,
            .rule = CodeRule::grid});
}

void run_cuda(Ctx& ctx, const Dequantize8& a) {
  const Decoder8 body{.y = a.y.as<float>(),
                      .codes = a.codes.as<std::uint8_t>(),
                      .absmax = a.absmax.as<float>(),
                      .map = a.map.as<float>(),
                      .blocksize = a.blocksize};
  launch_elements<4>(ctx, "dequantize8", a.y.numel(), body);
}

void run_cuda(Ctx& ctx, const DequantizeRows8& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    const std::int64_t K = a.codes.shape[1], gap = a.y_stride == 0 ? 0 : a.y_stride - K;
    const RowDecoder<T> body{
        .y = a.y.as<T>(), .codes = a.codes.as<std::int8_t>(), .scale = a.scale.as<float>(), .width = K, .gap = gap};
    launch_elements<4>(ctx, "dequantize_rows8", a.y.numel(), body);
  });
}

}  // namespace qtrain::ops
