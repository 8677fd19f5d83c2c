#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/reduce.cuh"

/// Encoding in E4M3 with a scale per block: a block is read once, its largest magnitude found, and its codes written.
namespace qtrain::ops {
namespace {

constexpr unsigned kBlockThreads = 256;
constexpr int kSide = static_cast<int>(kFp8Block), kPackWidth = 8;

/// Where codes and scales go.
struct Fp8Blocks {
  std::uint8_t* codes;
  float* scales;
  std::int64_t rows, row;     ///< of the codes
  std::int64_t scale_stride;  ///< elements between rows of the scales
};

__device__ __forceinline__ float largest_of(float amax, const float (&v)[kPackWidth]) {
#pragma unroll
  for (int j = 0; j < kPackWidth; ++j) amax = Larger{}(amax, fabsf(v[j]));
  return amax;
}

/// Eight codes of a row.
__device__ __forceinline__ void put_codes(std::uint8_t* to, const float (&v)[kPackWidth], float factor) {
  store_pack<kPackWidth>(to, fp8_codes<E4m3>(v, factor));
}

constexpr int kOfVector = kSide / kPackWidth;                                // threads
constexpr int kVectorsAtOnce = static_cast<int>(kBlockThreads) / kOfVector;  // in a block
constexpr int kVectorsOfThread = 2;

/// Block (i, b) encodes columns 128 b to 128 b + 127 of 32 rows, so that the scales it writes are neighbors. 16 threads
/// have a vector.
template <class T, Packs P>
__global__ void __launch_bounds__(kBlockThreads) fp8_encode_vectors(Fp8Blocks to, Fp8Source<T> x) {
  const int part = static_cast<int>(threadIdx.x) % kOfVector;
  const std::int64_t first = std::int64_t{blockIdx.x} * (kVectorsAtOnce * kVectorsOfThread) + threadIdx.x / kOfVector;
  const std::int64_t column = std::int64_t{blockIdx.y} * kSide + part * kPackWidth;
  float v[kVectorsOfThread][kPackWidth] = {};
#pragma unroll
  for (int i = 0; i < kVectorsOfThread; ++i)
    if (first + i * kVectorsAtOnce < x.rows) x.template load<kPackWidth, P>(v[i], first + i * kVectorsAtOnce, column);
#pragma unroll
  for (int i = 0; i < kVectorsOfThread; ++i) {
    float amax = largest_of(0.0f, v[i]);
#pragma unroll
    for (int bit = 1; bit < kOfVector; bit *= 2) amax = Larger{}(amax, from_lane_across(amax, bit));
    const float scale = fp8_scale(amax, E4m3::kMax);
    const std::int64_t r = first + i * kVectorsAtOnce;
    if (r >= to.rows) continue;
    if (column < to.row) put_codes(to.codes + r * to.row + column, v[i], 1.0f / scale);
    if (part == 0) to.scales[blockIdx.y * to.scale_stride + r] = scale;
  }
}

/// Codes that are written in columns and read in rows, of 128 bytes and four more, so that the accesses of a warp
/// spread over the banks.
template <int Rows>
struct TurnedCodes {
  union {
    std::uint8_t codes[Rows][kSide + 4];
    std::uint32_t words[Rows][kSide / 4 + 1];
  };
};

/// Each thread writes 16 codes at a time of rows `first_row`, ... from column `first_column` on.
template <int Rows>
__device__ __forceinline__ void put_turned(const Fp8Blocks& to, const TurnedCodes<Rows>& tile, std::int64_t first_row,
                                           std::int64_t first_column) {
  constexpr int kCodes = 16, kOfRow = kSide / kCodes;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < Rows * kOfRow; i += static_cast<int>(kBlockThreads)) {
    const int r = i / kOfRow, word = i % kOfRow * (kCodes / 4);
    if (first_row + r >= to.rows || first_column + 4 * word >= to.row) continue;
    const uint4 out = {tile.words[r][word], tile.words[r][word + 1], tile.words[r][word + 2], tile.words[r][word + 3]};
    *reinterpret_cast<uint4*>(to.codes + (first_row + r) * to.row + first_column + 4 * word) = out;
  }
}

constexpr int kTurnedColumns = 64;

struct TurnedVectors {
  TurnedCodes<kTurnedColumns> tile;
  float largest[kBlockThreads / kWarp][kTurnedColumns];  ///< of each warp's rows
  float factors[kTurnedColumns];
};

/// Block (b, j) encodes rows 128 b to 128 b + 127 of 64 columns of x, whose vectors are in rows of the result.
template <class T, Packs P>
__global__ void __launch_bounds__(kBlockThreads) fp8_encode_vectors_transposed(Fp8Blocks to, Fp8Source<T> x) {
  constexpr int kOfRow = kTurnedColumns / kPackWidth, kStep = static_cast<int>(kBlockThreads) / kOfRow;
  TurnedVectors& shared = shared_memory<TurnedVectors>();
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kSide,
                     first_column = std::int64_t{blockIdx.y} * kTurnedColumns;
  const int column = static_cast<int>(threadIdx.x) % kOfRow * kPackWidth, line = static_cast<int>(threadIdx.x) / kOfRow;
  float v[kSide / kStep][kPackWidth] = {}, amax[kPackWidth] = {};
#pragma unroll
  for (int i = 0; i < kSide / kStep; ++i) {
    const std::int64_t r = first_row + line + i * kStep;
    if (r < x.rows) x.template load<kPackWidth, P>(v[i], r, first_column + column);
  }
#pragma unroll
  for (int j = 0; j < kPackWidth; ++j) {
#pragma unroll
    for (int i = 0; i < kSide / kStep; ++i) amax[j] = Larger{}(amax[j], fabsf(v[i][j]));
#pragma unroll
    for (int bit = kOfRow; bit < kWarp; bit *= 2) amax[j] = Larger{}(amax[j], from_lane_across(amax[j], bit));
    if (threadIdx.x % kWarp < kOfRow) shared.largest[threadIdx.x / kWarp][column + j] = amax[j];
  }
  __syncthreads();
  if (threadIdx.x < kTurnedColumns) {
    float all = 0;
#pragma unroll
    for (unsigned warp = 0; warp < kBlockThreads / kWarp; ++warp)
      all = Larger{}(all, shared.largest[warp][threadIdx.x]);
    const float scale = fp8_scale(all, E4m3::kMax);
    shared.factors[threadIdx.x] = 1.0f / scale;
    if (first_column + threadIdx.x < to.rows)
      to.scales[blockIdx.x * to.scale_stride + first_column + threadIdx.x] = scale;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kPackWidth; j += 2) {
    const float factor = shared.factors[column + j], next = shared.factors[column + j + 1];
#pragma unroll
    for (int i = 0; i < kSide / kStep; ++i) {
      const std::uint32_t pair = ptx::fp8_pair<E4m3>(v[i][j] * factor, v[i][j + 1] * next);
      shared.tile.codes[column + j][line + i * kStep] = static_cast<std::uint8_t>(pair);
      shared.tile.codes[column + j + 1][line + i * kStep] = static_cast<std::uint8_t>(pair >> 8);
    }
  }
  __syncthreads();
  put_turned(to, shared.tile, first_column, first_row);
}

struct Square {
  TurnedCodes<kSide> tile;  ///< used if it is transposed
  BlockPartials<float> partials;
};

/// Block (i, j) encodes the square of rows 128 i to 128 i + 127 and columns 128 j to 128 j + 127 of x.
template <class T, Packs P, Transpose Turned>
__global__ void __launch_bounds__(kBlockThreads) fp8_encode_squares(Fp8Blocks to, Fp8Source<T> x) {
  constexpr int kOfRow = kSide / kPackWidth, kStep = static_cast<int>(kBlockThreads) / kOfRow;
  Square& shared = shared_memory<Square>();
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kSide, first_column = std::int64_t{blockIdx.y} * kSide;
  const int column = static_cast<int>(threadIdx.x) % kOfRow * kPackWidth, line = static_cast<int>(threadIdx.x) / kOfRow;
  float v[kSide / kStep][kPackWidth] = {}, amax = 0;
#pragma unroll
  for (int i = 0; i < kSide / kStep; ++i) {
    const std::int64_t r = first_row + line + i * kStep;
    if (r < x.rows) x.template load<kPackWidth, P>(v[i], r, first_column + column);
  }
#pragma unroll
  for (int i = 0; i < kSide / kStep; ++i) amax = largest_of(amax, v[i]);
  amax = block_reduce(amax, shared.partials, Larger{}, 0.0f);
  const float scale = fp8_scale(amax, E4m3::kMax), factor = 1.0f / scale;
  if (threadIdx.x == 0) {
    const bool turned = Turned == Transpose::yes;
    to.scales[(turned ? blockIdx.y : blockIdx.x) * to.scale_stride + (turned ? blockIdx.x : blockIdx.y)] = scale;
  }
  if constexpr (Turned == Transpose::yes) {
#pragma unroll
    for (int i = 0; i < kSide / kStep; ++i) {
      const Pack<std::uint8_t, kPackWidth> codes = fp8_codes<E4m3>(v[i], factor);
#pragma unroll
      for (int j = 0; j < kPackWidth; ++j) shared.tile.codes[column + j][line + i * kStep] = codes.v[j];
    }
    __syncthreads();
    put_turned(to, shared.tile, first_column, first_row);
  } else {
#pragma unroll
    for (int i = 0; i < kSide / kStep; ++i) {
      const std::int64_t r = first_row + line + i * kStep;
      if (r < to.rows && first_column + column < to.row)
        put_codes(to.codes + r * to.row + first_column + column, v[i], factor);
    }
  }
}

/// The blocks of a launch for tiles of codes.
dim3 blocks_of(const Fp8Blocks& to, const Shape& tile) {
  return {static_cast<unsigned>(ceil_div(to.rows, tile[0])), static_cast<unsigned>(ceil_div(to.row, tile[1]))};
}
dim3 turned(dim3 blocks) {
  return {blocks.y, blocks.x};
}

template <class T, Packs P>
void encode_vectors(Ctx& ctx, const ToFp8& a, const Fp8Blocks& to, const Fp8Source<T>& x) {
  if (a.transpose == Transpose::yes)
    return launch(ctx, "to_fp8", fp8_encode_vectors_transposed<T, P>,
                  {turned(blocks_of(to, {kTurnedColumns, kSide})), kBlockThreads, sizeof(TurnedVectors)}, to, x);
  launch(ctx, "to_fp8", fp8_encode_vectors<T, P>,
         {blocks_of(to, {kVectorsAtOnce * kVectorsOfThread, kSide}), kBlockThreads}, to, x);
}

template <class T, Packs P>
void encode_squares(Ctx& ctx, const ToFp8& a, const Fp8Blocks& to, const Fp8Source<T>& x) {
  const dim3 blocks = blocks_of(to, {kSide, kSide});
  if (a.transpose == Transpose::yes)
    return launch(ctx, "to_fp8", fp8_encode_squares<T, P, Transpose::yes>,
                  {turned(blocks), kBlockThreads, sizeof(Square)}, to, x);
  launch(ctx, "to_fp8", fp8_encode_squares<T, P, Transpose::no>, {blocks, kBlockThreads, sizeof(Square)}, to, x);
}

template <class T, Packs P>
void encode(Ctx& ctx, const ToFp8& a, const Fp8Source<T>& x) {
  const std::int64_t rows = a.codes.shape[0], row = a.codes.shape[1];
  const Fp8Blocks to{reinterpret_cast<std::uint8_t*>(a.codes.data), a.scale.as<float>(), rows, row,
                     fp8_scales(a.block, rows, row)[1]};
  if (a.block == Fp8Block::square) return encode_squares<T, P>(ctx, a, to, x);
  encode_vectors<T, P>(ctx, a, to, x);
}

}  // namespace

void encode_blocks_fp8(Ctx& ctx, const ToFp8& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() {
    const Fp8Source<T> x{a.x.as<T>(), a.x.shape[0], a.x.shape[1], row_step(a.x, a.x_stride)};
    packable<T>(x.width | x.step, x.data) == Packs::yes ? encode<T, Packs::yes>(ctx, a, x)
                                                        : encode<T, Packs::no>(ctx, a, x);
  });
}

}  // namespace qtrain::ops
