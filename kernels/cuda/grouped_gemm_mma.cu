#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/cuda/rows.cuh"

/// Tensor-core kernels: four warps compute 64 x 128 elements of C, 32 x 64 each. Shared memory (36 KiB) holds three
/// stages with 32 of the inner dimension each; cp.async fills one while another is multiplied.
namespace qtrain::ops {
namespace {

constexpr int kTileM = 64, kTileN = 128, kTileK = 32, kStages = 3, kWarpM = 32, kWarpN = 64;

template <class T, int Lanes, OperandLayout L>
using OperandTile = std::conditional_t<L == OperandLayout::by_row, Tile<T, Lanes, kTileK>, Tile<T, kTileK, Lanes>>;

template <class T, OperandLayout A, OperandLayout B>
struct GroupedStages {
  struct Stage {
    OperandTile<T, kTileM, A> a;
    OperandTile<T, kTileN, B> b;
  };
  Stage stages[kStages];
};

/// Like copy_rows, but converts from another type with rounding.
template <class T, class From, int Rows, int Width>
__device__ __forceinline__ void convert_rows(Tile<T, Rows, Width>& tile, const HeadRows<From>& from, int first) {
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

/// Starts loading the part of an operand whose inner dimension starts at `depth`.
template <OperandLayout L, class T, int Rows, int Width>
__device__ __forceinline__ void load_tile(Tile<T, Rows, Width>& tile, const GroupedSource& s, int depth) {
  const std::int64_t skipped = L == OperandLayout::by_row ? depth : s.first;
  const int end = L == OperandLayout::by_row ? s.end : s.depth_end,
            first = L == OperandLayout::by_row ? s.first : depth;
  const int width = L == OperandLayout::by_row ? s.depth_end - depth : s.end - s.first;
  using Other = std::conditional_t<std::is_same_v<T, F16>, Bf16, F16>;
  constexpr DType kOther = std::is_same_v<T, F16> ? DType::bf16 : DType::f16;
  if (s.dtype == DType::f32)
    convert_rows(tile, HeadRows<float>{elements<float>(s.data, skipped), s.step, end, width}, first);
  else if (s.dtype == kOther)
    convert_rows(tile, HeadRows<Other>{elements<Other>(s.data, skipped), s.step, end, width}, first);
  else
    copy_rows(tile, HeadRows<T>{elements<T>(s.data, skipped), s.step, end, width}, first);
}

/// A fragment [16, 16] of the left operand, with rows starting at `row`.
template <OperandLayout L, class T, int Rows, int Width>
__device__ __forceinline__ void left_fragment(std::uint32_t (&f)[4], const Tile<T, Rows, Width>& tile, int row, int k) {
  const int lane = lane_id();
  if constexpr (L == OperandLayout::by_row)
    ptx::ldmatrix(f, tile.v + tile.offset(row + lane % 16, 2 * k + lane / 16));
  else
    ptx::ldmatrix_transposed(f, tile.v + tile.offset(16 * k + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2));
}
/// Two adjacent fragments [16, 8] of the right operand, with columns starting at `column`.
template <OperandLayout L, class T, int Rows, int Width>
__device__ __forceinline__ void right_fragments(std::uint32_t (&f)[4], const Tile<T, Rows, Width>& tile, int column,
                                                int k) {
  const int lane = lane_id();
  if constexpr (L == OperandLayout::by_row)
    ptx::ldmatrix(f, tile.v + tile.offset(column + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
  else
    ptx::ldmatrix_transposed(f, tile.v + tile.offset(16 * k + lane % 16, column / 8 + lane / 16));
}

using WarpSums = float[kWarpM / 16][kWarpN / 8][4];

/// sums = A · B over the inner dimension starting at `depth`.
template <class T, OperandLayout A, OperandLayout B>
__device__ __forceinline__ void multiply_sources(WarpSums& sums, const GroupedSource& a, const GroupedSource& b,
                                                 int depth) {
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
    __syncthreads();  // this stage has arrived, and all threads have read the previous one
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

template <class C>
__device__ __forceinline__ void put_sums(const WarpSums& sums, const GroupedArgs& a, const GroupedPlace& place) {
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
__device__ __forceinline__ void finish_tile(const WarpSums& sums, const GroupedArgs& a, const GroupedPlace& place) {
  if (a.c_type == DType::f32)
    put_sums<float>(sums, a, place);
  else
    put_sums<T>(sums, a, place);
}

template <class T, OperandLayout B>
__global__ void __launch_bounds__(kAttentionThreads) grouped_gemm_mma(GroupedArgs a) {
  const GroupedRows tile = find_grouped_rows<kTileM>(a, static_cast<int>(blockIdx.x));
  if (tile.first >= tile.end) return;
  const int column = static_cast<int>(blockIdx.y) * kTileN;
  WarpSums sums = {};
  multiply_sources<T, OperandLayout::by_row, B>(sums, source_of_rows(a, tile), source_of_weight(a, tile, column), 0);
  finish_tile<T>(sums, a, {0, tile.first, tile.end, column});
}

template <class T>
__global__ void __launch_bounds__(kAttentionThreads) grouped_gemm_grad_mma(GroupedArgs a) {
  const GroupedMatrix t = grouped_matrix<kTileM, kTileN>(a);
  if (t.first >= t.end && a.adds) return;
  WarpSums sums = {};
  multiply_sources<T, OperandLayout::by_depth, OperandLayout::by_depth>(
      sums, {a.a, a.a_type, a.a_step, t.row, a.M, t.end}, {a.b, a.b_type, a.b_step, t.column, a.N, t.end}, t.first);
  finish_tile<T>(sums, a, {t.matrix, t.row, a.M, t.column});
}

template <class T>
void launch_grouped_mma(Ctx& ctx, const GroupedArgs& args, dim3 blocks, OperandLayout weight) {
  const auto run = [&]<OperandLayout L>() {
    launch(ctx, "grouped_gemm", grouped_gemm_mma<T, L>,
           {blocks, kAttentionThreads, sizeof(GroupedStages<T, OperandLayout::by_row, L>)}, args);
  };
  if (weight == OperandLayout::by_row)
    run.template operator()<OperandLayout::by_row>();
  else
    run.template operator()<OperandLayout::by_depth>();
}

template <class F>
void dispatch_half(DType type, const F& f) {
  if (type == DType::bf16) return f.template operator()<Bf16>();
  f.template operator()<F16>();
}

}  // namespace

void grouped_gemm_on_units(Ctx& ctx, const GroupedArgs& args, std::int64_t rows, OperandLayout weight, DType type) {
  const dim3 blocks(max_row_tiles<kTileM>(rows, args.experts), tiles_of(args.N, kTileN));
  dispatch_half(type, [&]<class T>() { launch_grouped_mma<T>(ctx, args, blocks, weight); });
}

void grouped_gemm_grad_on_units(Ctx& ctx, const GroupedArgs& args, DType type) {
  const dim3 blocks(tiles_of(args.M, kTileM), tiles_of(args.N, kTileN), static_cast<unsigned>(args.experts));
  dispatch_half(type, [&]<class T>() {
    launch(ctx, "grouped_gemm_grad", grouped_gemm_grad_mma<T>,
           {blocks, kAttentionThreads, sizeof(GroupedStages<T, OperandLayout::by_depth, OperandLayout::by_depth>)},
           args);
  });
}

}  // namespace qtrain::ops
