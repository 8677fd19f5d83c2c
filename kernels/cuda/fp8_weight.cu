#include "core/fp8.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/fp8.h"

namespace qtrain::ops {
namespace {

/// The value of an E4M3 code: its digits, moved to where a float has them, and the difference of both biases.
__device__ __forceinline__ float e4m3_value(std::uint8_t code) {
  constexpr float kBias = 0x1p120f;
  const float size = __uint_as_float((code & 0x7fU) << 20) * kBias;
  const float value = (code & 0x7fU) == 0x7fU ? __uint_as_float(0x7fc00000U) : size;
  return __uint_as_float(__float_as_uint(value) | (code & 0x80U) << 24);
}

/// `width`: elements of a row; `blocks`: number of scales for a row.
template <class T>
struct Fp8Expander {
  T* y;
  const std::uint8_t* codes;
  const float* scales;
  std::int64_t width, block_rows, block_columns, blocks;

  /// All N elements are in one block, unless N is 1.
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / width, column = i - row * width;
    const float scale = scales[row / block_rows * blocks + column / block_columns];
    const Pack<std::uint8_t, N> code = load_pack<N>(codes + i);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.v[j] = from_float<T>(e4m3_value(code.v[j]) * scale);
    store_pack<N>(y + i, out);
  }
};

/// Elements of x [rows, width], placed `row_step` and `column_step` elements apart.
struct ScalePlacer {
  float* y;
  const float* x;
  std::int64_t width, row_step, column_step;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / width, column = i - row * width;
    y[row * row_step + column * column_step] = x[i];
  }
};

constexpr unsigned kTurnThreads = 256;

/// A tile of 64 x 64 codes that is written in columns and read in rows; for the extra bytes, see Fp8Tile.
struct TurnedTile {
  static constexpr int kSide = 64;
  union {
    std::uint8_t codes[kSide][kSide + 4];
    std::uint32_t words[kSide][kSide / 4 + 1];
  };
};

/// Block (i, j) transposes rows 64 i to 64 i + 63 and columns 64 j to 64 j + 63 of x [rows, width], 16 codes of a row
/// per thread. Both sizes are multiples of 16.
__global__ void __launch_bounds__(kTurnThreads)
    transpose_codes(std::uint8_t* y, const std::uint8_t* x, std::int64_t rows, std::int64_t width) {
  constexpr int kSide = TurnedTile::kSide, kCodes = 16, kOfRow = kSide / kCodes;
  TurnedTile& tile = shared_memory<TurnedTile>();
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kSide, first_column = std::int64_t{blockIdx.y} * kSide;
  const int line = static_cast<int>(threadIdx.x) / kOfRow, at = static_cast<int>(threadIdx.x) % kOfRow * kCodes;
  if (first_row + line < rows && first_column + at < width) {
    const auto codes = load_pack<kCodes>(x + (first_row + line) * width + first_column + at);
#pragma unroll
    for (int j = 0; j < kCodes; ++j) tile.codes[at + j][line] = codes.v[j];
  }
  __syncthreads();
  if (first_column + line >= width || first_row + at >= rows) return;
  const int word = at / 4;
  const uint4 out = {tile.words[line][word], tile.words[line][word + 1], tile.words[line][word + 2],
                     tile.words[line][word + 3]};
  *reinterpret_cast<uint4*>(y + (first_column + line) * rows + first_row + at) = out;
}

}  // namespace

void run_cuda(Ctx& ctx, const ExpandFp8& a) {
  constexpr int kPack = 8;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(a.codes.data);
  dispatch_storage(a.y.dtype, [&]<class T>() {
    const Fp8Expander<T> body{a.y.as<T>(), codes,      a.scales.as<float>(), a.codes.shape[1],
                              a.block[0],  a.block[1], a.scales.shape[1]};
    const bool packs = aligned<T>(a.y.as<T>()) == Packs::yes && reinterpret_cast<std::uintptr_t>(codes) % kPack == 0 &&
                       a.codes.shape[1] % kPack == 0 && a.block[1] % kPack == 0;
    packs ? launch_elements<kPack>(ctx, "expand_fp8", a.y.numel(), body)
          : launch_elements<1>(ctx, "expand_fp8", a.y.numel(), body);
  });
}

void run_cuda(Ctx& ctx, const PlaceScales& a) {
  const bool turns = a.transpose == Transpose::yes;
  const std::int64_t step = a.y.shape[1], row_step = turns ? 1 : step, column_step = turns ? step : 1;
  launch_elements<1>(
      ctx, "place_scales", a.x.numel(),
      ScalePlacer{a.y.as<float>() + a.first * row_step, a.x.as<float>(), a.x.shape[1], row_step, column_step});
}

void run_cuda(Ctx& ctx, const TransposeFp8& a) {
  constexpr std::int64_t kSide = TurnedTile::kSide;
  const std::int64_t rows = a.x.shape[0], width = a.x.shape[1];
  const dim3 blocks(static_cast<unsigned>(ceil_div(rows, kSide)), static_cast<unsigned>(ceil_div(width, kSide)));
  launch(ctx, "transpose_fp8", transpose_codes, {blocks, kTurnThreads, sizeof(TurnedTile)},
         reinterpret_cast<std::uint8_t*>(a.y.data), reinterpret_cast<const std::uint8_t*>(a.x.data), rows, width);
}

}  // namespace qtrain::ops
