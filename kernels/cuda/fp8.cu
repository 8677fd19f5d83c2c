#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/reduce.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kFp8Threads = 256, kScaleThreads = 1024;

/// Block b finds the largest magnitude in its packs, or NaN if there is one.
template <int N, class T>
__global__ void __launch_bounds__(kFp8Threads) fp8_largest_parts(float* parts, Fp8Source<T> x) {
  auto& partials = shared_memory<BlockPartials<float>>();
  const std::int64_t packs = ceil_div(x.width, std::int64_t{N}), n = x.rows * packs;
  float amax = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t row = i / packs;
    float v[N];
    x.template load<N, N == 1 ? Packs::no : Packs::yes>(v, row, (i - row * packs) * N);
#pragma unroll
    for (int j = 0; j < N; ++j) amax = Larger{}(amax, fabsf(v[j]));
  }
  amax = block_reduce(amax, partials, Larger{}, 0.0f);
  if (threadIdx.x == 0) parts[blockIdx.x] = amax;
}

/// One block computes the scale from the largest of the parts.
__global__ void __launch_bounds__(kScaleThreads)
    fp8_scale_of(float* scale, const float* parts, int count, float largest) {
  auto& partials = shared_memory<BlockPartials<float>>();
  float amax = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    amax = Larger{}(amax, parts[i]);
  amax = block_reduce(amax, partials, Larger{}, 0.0f);
  if (threadIdx.x > 0) return;
  *scale = fp8_scale(amax, largest);
}

/// A thread encodes 16 elements of a row; `row` is the length of a row of codes.
template <class F, class T, Packs P>
__global__ void __launch_bounds__(kFp8Threads)
    fp8_encode(std::uint8_t* codes, std::int64_t row, const float* scale, Fp8Source<T> x) {
  constexpr int N = static_cast<int>(kFp8Row);
  const std::int64_t packs = row / N, i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= x.rows * packs) return;
  const std::int64_t r = i / packs, column = (i - r * packs) * N;
  const float factor = 1.0f / *scale;
  float v[N];
  x.template load<N, P>(v, r, column);
  store_pack<N>(codes + r * row + column, fp8_codes<F>(v, factor));
}

/// A tile of 64 x 64 codes that is written in columns and read in rows. Rows have four extra bytes, so that the
/// accesses of a warp spread over the banks.
struct Fp8Tile {
  static constexpr int kSide = 64;
  union {
    std::uint8_t codes[kSide][kSide + 4];
    std::uint32_t words[kSide][kSide / 4 + 1];
  };
};

/// Block (i, j) encodes rows 64 i to 64 i + 63 and columns 64 j to 64 j + 63 of x, whose rows are columns of the
/// result.
template <class F, class T, Packs P>
__global__ void __launch_bounds__(kFp8Threads)
    fp8_encode_transposed(std::uint8_t* codes, std::int64_t row, const float* scale, Fp8Source<T> x) {
  constexpr int kSide = Fp8Tile::kSide, N = 8, kOfRow = kSide / N, kStep = kFp8Threads / kOfRow;
  Fp8Tile& tile = shared_memory<Fp8Tile>();
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kSide, first_column = std::int64_t{blockIdx.y} * kSide;
  const float factor = 1.0f / *scale;
  const int column = static_cast<int>(threadIdx.x) % kOfRow * N;
#pragma unroll
  for (int r = static_cast<int>(threadIdx.x) / kOfRow; r < kSide; r += kStep) {
    float v[N] = {};
    if (first_row + r < x.rows) x.template load<N, P>(v, first_row + r, first_column + column);
    const Pack<std::uint8_t, N> codes_of_row = fp8_codes<F>(v, factor);
#pragma unroll
    for (int j = 0; j < N; ++j) tile.codes[column + j][r] = codes_of_row.v[j];
  }
  __syncthreads();
  constexpr int kWords = 4;  // per thread
  const int c = static_cast<int>(threadIdx.x) / (kSide / 4 / kWords);
  const int word = static_cast<int>(threadIdx.x) % (kSide / 4 / kWords) * kWords;
  const std::int64_t at = first_row + word * 4;
  if (first_column + c >= x.width || at >= row) return;
  uint4 out = {tile.words[c][word], tile.words[c][word + 1], tile.words[c][word + 2], tile.words[c][word + 3]};
  *reinterpret_cast<uint4*>(codes + (first_column + c) * row + at) = out;
}

template <class T>
void find_scale(Ctx& ctx, const ToFp8& a, const Fp8Source<T>& x, float largest) {
  constexpr std::int64_t kMaxParts = 1024, kOfThread = 4;
  constexpr std::size_t kShared = sizeof(BlockPartials<float>);
  const auto find_from = [&](const float* parts, std::int64_t count) {
    const unsigned threads = count > kMaxParts ? kScaleThreads : kFp8Threads;
    launch(ctx, "to_fp8", fp8_scale_of, {1, threads, kShared}, a.scale.as<float>(), parts, count, largest);
  };
  if (a.largest) return find_from(a.largest.as<float>(), a.largest.numel());
  dispatch_packs<T>(packable<T>(x.width | x.step, x.data), [&]<int N>() {
    const std::int64_t packs = x.rows * ceil_div(x.width, std::int64_t{N});
    const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(packs, kFp8Threads * kOfThread), 1, kMaxParts);
    auto* parts = reinterpret_cast<float*>(ctx.scratch(static_cast<std::size_t>(blocks) * sizeof(float)));
    launch(ctx, "to_fp8", fp8_largest_parts<N, T>, {static_cast<unsigned>(blocks), kFp8Threads, kShared}, parts, x);
    find_from(parts, blocks);
  });
}

template <class F, class T, Packs P>
void encode(Ctx& ctx, const ToFp8& a, const Fp8Source<T>& x) {
  auto* codes = reinterpret_cast<std::uint8_t*>(a.codes.data);
  const std::int64_t row = a.codes.shape[1];
  const float* scale = a.scale.as<float>();
  if (a.transpose == Transpose::yes) {
    constexpr std::int64_t kSide = Fp8Tile::kSide;
    const dim3 blocks(static_cast<unsigned>(ceil_div(row, kSide)), static_cast<unsigned>(ceil_div(x.width, kSide)));
    return launch(ctx, "to_fp8", fp8_encode_transposed<F, T, P>, {blocks, kFp8Threads, sizeof(Fp8Tile)}, codes, row,
                  scale, x);
  }
  const auto blocks = static_cast<unsigned>(ceil_div(x.rows * (row / kFp8Row), std::int64_t{kFp8Threads}));
  launch(ctx, "to_fp8", fp8_encode<F, T, P>, {blocks, kFp8Threads}, codes, row, scale, x);
}

template <class F, class T>
void convert(Ctx& ctx, const ToFp8& a) {
  const Fp8Source<T> x{a.x.as<T>(), a.x.shape[0], a.x.shape[1], row_step(a.x, a.x_stride)};
  find_scale(ctx, a, x, F::kMax);
  if (packable<T>(x.width | x.step, x.data) == Packs::yes)
    encode<F, T, Packs::yes>(ctx, a, x);
  else
    encode<F, T, Packs::no>(ctx, a, x);
}

}  // namespace

void run_cuda(Ctx& ctx, const ToFp8& a) {
  if (a.block != Fp8Block::matrix) return encode_blocks_fp8(ctx, a);
  dispatch_storage(a.x.dtype, [&]<class T>() {
    a.codes.dtype == DType::f8_e4m3 ? convert<E4m3, T>(ctx, a) : convert<E5m2, T>(ctx, a);
  });
}

}  // namespace qtrain::ops
