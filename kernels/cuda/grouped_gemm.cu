#include "kernels/cuda/grouped_gemm.cuh"

/// Selects the kernels. Those in this file handle any types, shapes and alignment: a block of 256 threads computes 64 x
/// 64 elements of C, 16 per thread, in f32.
namespace qtrain::ops {
namespace {

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

__device__ __forceinline__ void load_plain(float (&tile)[kPlainDepth][kPlainTile + 1], const GroupedSource& s,
                                           OperandLayout lying, int depth) {
  for (int i = static_cast<int>(threadIdx.x); i < kPlainDepth * kPlainTile; i += kPlainThreads) {
    const bool by_row = lying == OperandLayout::by_row;
    const int k = by_row ? i % kPlainDepth : i / kPlainTile, lane = by_row ? i / kPlainDepth : i % kPlainTile;
    const bool there = s.first + lane < s.end && depth + k < s.depth_end;
    const std::int64_t row = by_row ? s.first + lane : depth + k, column = by_row ? depth + k : s.first + lane;
    tile[k][lane] = there ? load_any(s.data, s.dtype, row * s.step + column) : 0.0f;
  }
}

struct PlainOperand {
  GroupedSource source;
  OperandLayout lying;
};
__device__ __forceinline__ void multiply_plain(const PlainOperand& a, const PlainOperand& b, const GroupedArgs& args,
                                               const GroupedPlace& place, int depth) {
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

__global__ void __launch_bounds__(kPlainThreads) grouped_gemm_plain(GroupedArgs a, OperandLayout weight) {
  const GroupedRows tile = find_grouped_rows<kPlainTile>(a, static_cast<int>(blockIdx.x));
  if (tile.first >= tile.end) return;
  const int column = static_cast<int>(blockIdx.y) * kPlainTile;
  multiply_plain({source_of_rows(a, tile), OperandLayout::by_row}, {source_of_weight(a, tile, column), weight}, a,
                 {0, tile.first, tile.end, column}, 0);
}
__global__ void __launch_bounds__(kPlainThreads) grouped_gemm_grad_plain(GroupedArgs a) {
  const GroupedMatrix t = grouped_matrix<kPlainTile, kPlainTile>(a);
  if (t.first >= t.end && a.adds) return;
  multiply_plain({{a.a, a.a_type, a.a_step, t.row, a.M, t.end}, OperandLayout::by_depth},
                 {{a.b, a.b_type, a.b_step, t.column, a.N, t.end}, OperandLayout::by_depth}, a,
                 {t.matrix, t.row, a.M, t.column}, t.first);
}

/// Tensor cores require compute capability 8.0.
struct GroupedUnits {
  explicit GroupedUnits(Device device) : mma(cuda_info(device.index).major >= 8) {}
  bool mma;
};

/// Whether a matrix with rows `step` apart can be moved in chunks of 16 bytes.
bool in_chunks(ConstTensor t, std::int64_t step) {
  return t.shape[-1] % 8 == 0 && step % 8 == 0 && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
}

/// The type that tensor cores multiply in, to which operands are rounded; f32 if the plain kernels compute the GEMM.
DType units_type(Ctx& ctx, const GroupedArgs& args, bool chunks) {
  const DType type = gemm_operand_type(ctx.matmul(), args.a_type, args.b_type);
  const auto fits = [&](DType d) { return d == DType::f32 || d == type; };
  const bool mma = type != DType::f32 && fits(args.c_type) && chunks;
  return mma && ctx.kept<GroupedUnits>().mma ? type : DType::f32;
}

void check_types(const GroupedArgs& args) {
  for (const DType d : {args.a_type, args.b_type, args.c_type})
    check(d == DType::f32 || d == DType::bf16 || d == DType::f16, "grouped_gemm: CUDA kernels take f32, bf16 and f16");
}

bool by_pairs(ConstTensor c, std::int64_t step) {
  return step % 2 == 0 && reinterpret_cast<std::uintptr_t>(c.data) % (2 * size_of(c.dtype)) == 0;
}

}  // namespace

void run_cuda(Ctx& ctx, const GroupedGemm& g) {
  const OperandLayout weight = g.transpose_b == Transpose::yes ? OperandLayout::by_row : OperandLayout::by_depth;
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
        {dim3(max_row_tiles<kPlainTile>(R, E), tiles_of(args.N, kPlainTile)), kPlainThreads, sizeof(PlainTiles)}, args,
        weight);
  grouped_gemm_on_units(ctx, args, R, weight, type);
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
  grouped_gemm_grad_on_units(ctx, args, type);
}

}  // namespace qtrain::ops
