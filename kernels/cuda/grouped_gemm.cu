#include "kernels/grouped_gemm.h"

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

/// One launch for all experts. What an expert's rows are is read from `offsets` by the blocks themselves: of the row
/// tiles, which the host can only bound, expert e has those from offsets[e] / height + e on. These starts rise with e
/// and lie at least as far apart as its rows need, so that a block finds its expert by bisection, and a tile too many
/// ends at once.
namespace qtrain::ops {
namespace {

/// Elements of an operand as they lie in memory: row by row of C (column by column), with the summed index running
/// fastest, or the other way around.
enum class Lying : std::uint8_t { by_row, by_depth };

/// One operand as a block sees it: its rows (columns) [first, end) of C, the summed index in [.., depth_end).
struct Source {
  const void* data;
  DType dtype;
  std::int64_t step;
  int first, end, depth_end;
};

struct GroupedArgs {
  void* c;
  const void *a, *b;
  const std::int32_t* offsets;
  DType c_type, a_type, b_type;
  std::int64_t a_step, b_step, c_step;
  int experts, M, N, K;  ///< of GroupedGemm M is not used, of its gradient K
  float alpha;
  bool adds, by_pairs;  ///< whether two neighbors of C can be moved at once
};

/// An expert's part of GroupedGemm.
struct RowTile {
  int expert, first, end;
};
template <int Height>
__device__ __forceinline__ RowTile find_row_tile(const GroupedArgs& a, int tile) {
  int low = 0, high = a.experts;  // starts[low] <= tile < starts[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (a.offsets[middle] / Height + middle <= tile ? low : high) = middle;
  }
  const int first = a.offsets[low];
  return {low, first + (tile - first / Height - low) * Height, a.offsets[low + 1]};
}
template <int Height>
unsigned most_row_tiles(std::int64_t rows, std::int64_t experts) {
  return static_cast<unsigned>(rows / Height + experts);
}

template <class T>
__device__ __forceinline__ const T* elements(const void* data, std::int64_t from) {
  return static_cast<const T*>(data) + from;
}
__device__ __forceinline__ const void* elements(const void* data, DType dtype, std::int64_t from) {
  return static_cast<const char*>(data) + from * (dtype == DType::f32 ? 4 : 2);
}

/// Operands of the block's tile of GroupedGemm; B_e lies [E, N, K] or [E, K, N].
__device__ __forceinline__ Source source_of_rows(const GroupedArgs& a, const RowTile& tile) {
  return {a.a, a.a_type, a.a_step, tile.first, tile.end, a.K};
}
__device__ __forceinline__ Source source_of_weight(const GroupedArgs& a, const RowTile& tile, int column) {
  return {elements(a.b, a.b_type, std::int64_t{tile.expert} * a.N * a.K), a.b_type, a.b_step, column, a.N, a.K};
}

// ---- tensor cores: 64 x 128 elements of C by four warps, 32 x 64 each; 32 of the summed index in each of three stages

constexpr int kTileM = 64, kTileN = 128, kTileK = 32, kStages = 3, kWarpM = 32, kWarpN = 64;

template <class T, int Lanes, Lying L>
using OperandTile = std::conditional_t<L == Lying::by_row, Tile<T, Lanes, kTileK>, Tile<T, kTileK, Lanes>>;

template <class T, Lying A, Lying B>
struct GroupedStages {
  struct Stage {
    OperandTile<T, kTileM, A> a;
    OperandTile<T, kTileN, B> b;
  };
  Stage stages[kStages];
};

/// copy_rows from f32, rounded on the way.
template <class T, int Rows, int Width>
__device__ __forceinline__ void convert_rows(Tile<T, Rows, Width>& tile, const HeadRows<float>& from, int first) {
  constexpr int kAcross = Width / kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * kAcross; i += kAttentionThreads) {
    const int row = i / kAcross, chunk = i % kAcross;
    float v[kChunk] = {};
    if (first + row < from.end && chunk * kChunk < from.width)
      load_floats(v, from.data + (first + row) * from.stride + chunk * kChunk);
    Pack<T, kChunk> out;
#pragma unroll
    for (int j = 0; j < kChunk; ++j) out.v[j] = from_float<T>(v[j]);
    store_pack<kChunk>(tile.v + tile.offset(row, chunk), out);
  }
}

/// Starts loading the part of an operand with the summed index from `depth` on.
template <Lying L, class T, int Rows, int Width>
__device__ __forceinline__ void load_tile(Tile<T, Rows, Width>& tile, const Source& s, int depth) {
  const std::int64_t skipped = L == Lying::by_row ? depth : s.first;
  const int end = L == Lying::by_row ? s.end : s.depth_end, first = L == Lying::by_row ? s.first : depth;
  const int width = L == Lying::by_row ? s.depth_end - depth : s.end - s.first;
  if (s.dtype == DType::f32)
    convert_rows(tile, HeadRows<float>{elements<float>(s.data, skipped), s.step, end, width}, first);
  else
    copy_rows(tile, HeadRows<T>{elements<T>(s.data, skipped), s.step, end, width}, first);
}

/// Fragment [16, 16] of the left operand, rows from `row` on.
template <Lying L, class T, int Rows, int Width>
__device__ __forceinline__ void left_fragment(std::uint32_t (&f)[4], const Tile<T, Rows, Width>& tile, int row, int k) {
  const int lane = lane_id();
  if constexpr (L == Lying::by_row)
    ptx::ldmatrix(f, tile.v + tile.offset(row + lane % 16, 2 * k + lane / 16));
  else
    ptx::ldmatrix_transposed(f, tile.v + tile.offset(16 * k + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2));
}
/// Two fragments [16, 8] of the right operand side by side, columns from `column` on.
template <Lying L, class T, int Rows, int Width>
__device__ __forceinline__ void right_fragments(std::uint32_t (&f)[4], const Tile<T, Rows, Width>& tile, int column,
                                                int k) {
  const int lane = lane_id();
  if constexpr (L == Lying::by_row)
    ptx::ldmatrix(f, tile.v + tile.offset(column + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
  else
    ptx::ldmatrix_transposed(f, tile.v + tile.offset(16 * k + lane % 16, column / 8 + lane / 16));
}

using WarpSums = float[kWarpM / 16][kWarpN / 8][4];

/// sums = the product of the operands over the summed index from `depth` on.
template <class T, Lying A, Lying B>
__device__ __forceinline__ void multiply_sources(WarpSums& sums, const Source& a, const Source& b, int depth) {
  auto& shared = shared_memory<GroupedStages<T, A, B>>();
  const int steps = ceil_div(a.depth_end - depth, kTileK);
  const int row = warp_id() / 2 * kWarpM, column = warp_id() % 2 * kWarpN;
  const auto load = [&](int step) {
    if (step < steps) {
      auto& stage = shared.stages[step % kStages];
      load_tile<A>(stage.a, a, depth + step * kTileK);
      load_tile<B>(stage.b, b, depth + step * kTileK);
    }
    ptx::cp_async_commit();
  };
  for (int step = 0; step < kStages - 1; ++step) load(step);
  for (int step = 0; step < steps; ++step) {
    ptx::cp_async_wait<kStages - 2>();
    __syncthreads();  // the stage is there, and the one before has been read by all
    load(step + kStages - 1);
    const auto& stage = shared.stages[step % kStages];
#pragma unroll
    for (int k = 0; k < kTileK / 16; ++k) {
      std::uint32_t left[kWarpM / 16][4];
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) left_fragment<A>(left[i], stage.a, row + 16 * i, k);
#pragma unroll
      for (int j = 0; j < kWarpN / 8; j += 2) {
        std::uint32_t right[4];
        right_fragments<B>(right, stage.b, column + 8 * j, k);
#pragma unroll
        for (int i = 0; i < kWarpM / 16; ++i) mma_pair<T>(sums[i][j], sums[i][j + 1], left[i], right);
      }
    }
  }
}

/// Where a block's tile lies in C: rows [first, end), columns from `column` on.
struct Place {
  std::int64_t expert;  ///< elements before its matrix
  int first, end, column;
};

template <class C>
__device__ __forceinline__ void put_sums(const WarpSums& sums, const GroupedArgs& a, const Place& place) {
  const Target<C> c{static_cast<C*>(a.c) + place.expert, a.adds};
  const int first = place.first + warp_id() / 2 * kWarpM + lane_id() / 4;
  const int column = place.column + warp_id() % 2 * kWarpN + lane_id() % 4 * 2;
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + 16 * i + 8 * h;
      if (row >= place.end) continue;
#pragma unroll
      for (int j = 0; j < kWarpN / 8; ++j) {
        const float v[2] = {sums[i][j][2 * h] * a.alpha, sums[i][j][2 * h + 1] * a.alpha};
        const std::int64_t at = row * a.c_step + column + 8 * j;
        const int left = a.N - column - 8 * j;
        if (left >= 2 && a.by_pairs) {
          c.put_pack(at, v);
        } else {
          if (left >= 1) c.put(at, v[0]);
          if (left >= 2) c.put(at + 1, v[1]);
        }
      }
    }
}
template <class T>
__device__ __forceinline__ void finish_tile(const WarpSums& sums, const GroupedArgs& a, const Place& place) {
  if (a.c_type == DType::f32)
    put_sums<float>(sums, a, place);
  else
    put_sums<T>(sums, a, place);
}

template <class T, Lying B>
__global__ void __launch_bounds__(kAttentionThreads) grouped_gemm_mma(GroupedArgs a) {
  const RowTile tile = find_row_tile<kTileM>(a, static_cast<int>(blockIdx.x));
  if (tile.first >= tile.end) return;
  const int column = static_cast<int>(blockIdx.y) * kTileN;
  WarpSums sums = {};
  multiply_sources<T, Lying::by_row, B>(sums, source_of_rows(a, tile), source_of_weight(a, tile, column), 0);
  finish_tile<T>(sums, a, {0, tile.first, tile.end, column});
}

/// Block (x, y, z): a tile of the matrix of expert z.
struct MatrixTile {
  int row, column, first, end;  ///< of the matrix; of the expert's rows
  std::int64_t matrix;
};
template <int Height, int Width>
__device__ __forceinline__ MatrixTile matrix_tile(const GroupedArgs& a) {
  const int e = static_cast<int>(blockIdx.z);
  return {static_cast<int>(blockIdx.x) * Height, static_cast<int>(blockIdx.y) * Width, a.offsets[e], a.offsets[e + 1],
          std::int64_t{e} * a.M * a.N};
}

template <class T>
__global__ void __launch_bounds__(kAttentionThreads) grouped_gemm_grad_mma(GroupedArgs a) {
  const MatrixTile t = matrix_tile<kTileM, kTileN>(a);
  if (t.first >= t.end && a.adds) return;
  WarpSums sums = {};
  multiply_sources<T, Lying::by_depth, Lying::by_depth>(sums, {a.a, a.a_type, a.a_step, t.row, a.M, t.end},
                                                        {a.b, a.b_type, a.b_step, t.column, a.N, t.end}, t.first);
  finish_tile<T>(sums, a, {t.matrix, t.row, a.M, t.column});
}

// ---- any types, shapes and addresses: 64 x 64 elements of C by 256 threads, 16 each, in f32

constexpr int kPlainTile = 64, kPlainDepth = 16, kPlainThreads = 256, kPlainSide = 16,
              kOfThread = kPlainTile / kPlainSide;

struct PlainTiles {
  float a[kPlainDepth][kPlainTile + 1], b[kPlainDepth][kPlainTile + 1];
};

__device__ __forceinline__ float load_any(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) return static_cast<const float*>(data)[i];
  return dtype == DType::bf16 ? to_float(static_cast<const Bf16*>(data)[i])
                              : to_float(static_cast<const F16*>(data)[i]);
}
__device__ __forceinline__ void put_any(const GroupedArgs& a, std::int64_t i, float v) {
  if (a.c_type == DType::f32)
    Target<float>{static_cast<float*>(a.c), a.adds}.put(i, v);
  else if (a.c_type == DType::bf16)
    Target<Bf16>{static_cast<Bf16*>(a.c), a.adds}.put(i, v);
  else
    Target<F16>{static_cast<F16*>(a.c), a.adds}.put(i, v);
}

__device__ __forceinline__ void load_plain(float (&tile)[kPlainDepth][kPlainTile + 1], const Source& s, Lying lying,
                                           int depth) {
  for (int i = static_cast<int>(threadIdx.x); i < kPlainDepth * kPlainTile; i += kPlainThreads) {
    const bool by_row = lying == Lying::by_row;
    const int k = by_row ? i % kPlainDepth : i / kPlainTile, lane = by_row ? i / kPlainDepth : i % kPlainTile;
    const bool there = s.first + lane < s.end && depth + k < s.depth_end;
    const std::int64_t row = by_row ? s.first + lane : depth + k, column = by_row ? depth + k : s.first + lane;
    tile[k][lane] = there ? load_any(s.data, s.dtype, row * s.step + column) : 0.0f;
  }
}

struct PlainOperand {
  Source source;
  Lying lying;
};
__device__ __forceinline__ void multiply_plain(const PlainOperand& a, const PlainOperand& b, const GroupedArgs& args,
                                               const Place& place, int depth) {
  auto& tiles = shared_memory<PlainTiles>();
  const int x = static_cast<int>(threadIdx.x) % kPlainSide, y = static_cast<int>(threadIdx.x) / kPlainSide;
  float sums[kOfThread][kOfThread] = {};
  for (; depth < a.source.depth_end; depth += kPlainDepth) {
    load_plain(tiles.a, a.source, a.lying, depth);
    load_plain(tiles.b, b.source, b.lying, depth);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kPlainDepth; ++k)
#pragma unroll
      for (int i = 0; i < kOfThread; ++i)
#pragma unroll
        for (int j = 0; j < kOfThread; ++j)
          sums[i][j] += tiles.a[k][y + i * kPlainSide] * tiles.b[k][x + j * kPlainSide];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i)
#pragma unroll
    for (int j = 0; j < kOfThread; ++j) {
      const int row = place.first + y + i * kPlainSide, column = place.column + x + j * kPlainSide;
      if (row < place.end && column < args.N)
        put_any(args, place.expert + row * args.c_step + column, sums[i][j] * args.alpha);
    }
}

__global__ void __launch_bounds__(kPlainThreads) grouped_gemm_plain(GroupedArgs a, Lying weight) {
  const RowTile tile = find_row_tile<kPlainTile>(a, static_cast<int>(blockIdx.x));
  if (tile.first >= tile.end) return;
  const int column = static_cast<int>(blockIdx.y) * kPlainTile;
  multiply_plain({source_of_rows(a, tile), Lying::by_row}, {source_of_weight(a, tile, column), weight}, a,
                 {0, tile.first, tile.end, column}, 0);
}
__global__ void __launch_bounds__(kPlainThreads) grouped_gemm_grad_plain(GroupedArgs a) {
  const MatrixTile t = matrix_tile<kPlainTile, kPlainTile>(a);
  if (t.first >= t.end && a.adds) return;
  multiply_plain({{a.a, a.a_type, a.a_step, t.row, a.M, t.end}, Lying::by_depth},
                 {{a.b, a.b_type, a.b_step, t.column, a.N, t.end}, Lying::by_depth}, a,
                 {t.matrix, t.row, a.M, t.column}, t.first);
}

// ---- which of them

/// Tensor cores from compute capability 8.0 on.
struct GroupedUnits {
  explicit GroupedUnits(Device device) : mma(cuda_info(device.index).major >= 8) {}
  bool mma;
};

/// Whether 16 bytes of a matrix can be moved at once, rows `step` apart.
bool in_chunks(ConstTensor t, std::int64_t step) {
  return t.shape[-1] % kChunk == 0 && step % kChunk == 0 && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
}

/// The type of the tensor cores' operands: others are f32 and rounded. f32 where plain kernels compute the product.
DType units_type(Ctx& ctx, const GroupedArgs& args, bool chunks) {
  const DType type = gemm_operand_type(ctx.matmul(), args.a_type, args.b_type);
  const auto fits = [&](DType d) { return d == DType::f32 || d == type; };
  const bool mma = type != DType::f32 && fits(args.a_type) && fits(args.b_type) && fits(args.c_type) && chunks;
  return mma && ctx.kept<GroupedUnits>().mma ? type : DType::f32;
}

void check_types(const GroupedArgs& args) {
  for (const DType d : {args.a_type, args.b_type, args.c_type})
    check(d == DType::f32 || d == DType::bf16 || d == DType::f16, "grouped_gemm: CUDA kernels take f32, bf16 and f16");
}

bool by_pairs(ConstTensor c, std::int64_t step) {
  return step % 2 == 0 && reinterpret_cast<std::uintptr_t>(c.data) % (2 * size_of(c.dtype)) == 0;
}

unsigned tiles_of(std::int64_t n, int tile) {
  return static_cast<unsigned>(ceil_div(n, std::int64_t{tile}));
}

template <class T>
void launch_grouped_mma(Ctx& ctx, const GroupedArgs& args, dim3 blocks, Lying weight) {
  const auto run = [&]<Lying L>() {
    launch(ctx, "grouped_gemm", grouped_gemm_mma<T, L>,
           {blocks, kAttentionThreads, sizeof(GroupedStages<T, Lying::by_row, L>)}, args);
  };
  if (weight == Lying::by_row)
    run.template operator()<Lying::by_row>();
  else
    run.template operator()<Lying::by_depth>();
}

template <class F>
void dispatch_half(DType type, const F& f) {
  if (type == DType::bf16) return f.template operator()<Bf16>();
  f.template operator()<F16>();
}

}  // namespace

void run_cuda(Ctx& ctx, const GroupedGemm& g) {
  const Lying weight = g.transpose_b == Transpose::yes ? Lying::by_row : Lying::by_depth;
  const std::int64_t R = g.a.shape[0], E = g.b.shape[0], c_step = row_step(g.c.t, g.c_stride);
  const GroupedArgs args{.c = g.c.t.data,
                         .a = g.a.data,
                         .b = g.b.data,
                         .offsets = g.offsets.as<std::int32_t>(),
                         .c_type = g.c.t.dtype,
                         .a_type = g.a.dtype,
                         .b_type = g.b.dtype,
                         .a_step = row_step(g.a, g.a_stride),
                         .b_step = g.b.shape[2],
                         .c_step = c_step,
                         .experts = static_cast<int>(E),
                         .M = 0,
                         .N = static_cast<int>(g.c.t.shape[1]),
                         .K = static_cast<int>(g.a.shape[1]),
                         .alpha = static_cast<float>(g.alpha),
                         .adds = g.c.adds(),
                         .by_pairs = by_pairs(g.c.t, c_step)};
  check_types(args);
  const DType type = units_type(ctx, args, in_chunks(g.a, args.a_step) && in_chunks(g.b, args.b_step));
  if (type == DType::f32)
    return launch(
        ctx, "grouped_gemm", grouped_gemm_plain,
        {dim3(most_row_tiles<kPlainTile>(R, E), tiles_of(args.N, kPlainTile)), kPlainThreads, sizeof(PlainTiles)}, args,
        weight);
  const dim3 blocks(most_row_tiles<kTileM>(R, E), tiles_of(args.N, kTileN));
  dispatch_half(type, [&]<class T>() { launch_grouped_mma<T>(ctx, args, blocks, weight); });
}

void run_cuda(Ctx& ctx, const GroupedGemmGrad& g) {
  const auto E = static_cast<unsigned>(g.c.t.shape[0]);
  const std::int64_t N = g.c.t.shape[2];
  const GroupedArgs args{.c = g.c.t.data,
                         .a = g.a.data,
                         .b = g.b.data,
                         .offsets = g.offsets.as<std::int32_t>(),
                         .c_type = g.c.t.dtype,
                         .a_type = g.a.dtype,
                         .b_type = g.b.dtype,
                         .a_step = row_step(g.a, g.a_stride),
                         .b_step = row_step(g.b, g.b_stride),
                         .c_step = N,
                         .experts = static_cast<int>(E),
                         .M = static_cast<int>(g.c.t.shape[1]),
                         .N = static_cast<int>(N),
                         .K = 0,
                         .alpha = static_cast<float>(g.alpha),
                         .adds = g.c.adds(),
                         .by_pairs = by_pairs(g.c.t, N)};
  check_types(args);
  const DType type = units_type(ctx, args, in_chunks(g.a, args.a_step) && in_chunks(g.b, args.b_step));
  if (type == DType::f32)
    return launch(ctx, "grouped_gemm_grad", grouped_gemm_grad_plain,
                  {dim3(tiles_of(args.M, kPlainTile), tiles_of(N, kPlainTile), E), kPlainThreads, sizeof(PlainTiles)},
                  args);
  dispatch_half(type, [&]<class T>() {
    launch(ctx, "grouped_gemm_grad", grouped_gemm_grad_mma<T>,
           {dim3(tiles_of(args.M, kTileM), tiles_of(N, kTileN), E), kAttentionThreads,
            sizeof(GroupedStages<T, Lying::by_depth, Lying::by_depth>)},
           args);
  });
}

}  // namespace qtrain::ops
