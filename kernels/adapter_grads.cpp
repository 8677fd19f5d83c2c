#include "kernels/adapter_grads.h"

#include <algorithm>

namespace qtrain::ops {
namespace {

constexpr std::int64_t kInChunk = 8;  // 16-bit elements in 16 bytes

/// Tensor cores require compute capability 8.0.
struct AdapterUnits {
  explicit AdapterUnits(Device device) : mma(cuda_info(device.index).major >= 8) {}
  bool mma;
};

bool in_chunks(ConstTensor t, std::int64_t stride) {
  return row_step(t, stride) % kInChunk == 0 && t.shape[1] % kInChunk == 0 &&
         reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
}

bool can_be_read_once(const AdapterGrads& a, const AdapterGrads::Layer& l) {
  const AdapterGrads::Layer& first = a.layers.front();
  const bool half = l.dy.dtype == DType::bf16 || l.dy.dtype == DType::f16;
  return half && l.dy.dtype == first.dy.dtype && l.u.dtype == l.dy.dtype && l.du.dtype == l.dy.dtype &&
         l.b.dtype == first.b.dtype && (l.b.dtype == l.dy.dtype || l.b.dtype == DType::f32) &&
         l.u.shape[1] <= AdapterGrads::kMaxRank && in_chunks(l.dy, a.dy_stride) && in_chunks(l.u, a.u_stride) &&
         in_chunks(l.du, a.du_stride) && in_chunks(l.b, 0) && l.db.wanted() && l.db.t.dtype == DType::f32 &&
         in_chunks(l.db.t, 0) && (!l.copy || in_chunks(l.copy, a.copy_stride));
}

bool fits_in_memory(const AdapterGrads& a) {
  std::array<std::int64_t, AdapterGrads::kMaxLayers> outputs{};
  for (std::size_t i = 0; i < a.count(); ++i) outputs[i] = a.layers[i].dy.shape[1];
  return AdapterGrid::of(a.tokens(), std::span(outputs).first(a.count()), a.memory).tokens > 0;
}

}  // namespace

std::size_t AdapterGrid::bytes(std::int64_t of_launch, std::span<const std::int64_t> outputs) const {
  std::int64_t sums = 0;
  for (const std::int64_t n : outputs) sums += du_sums(of_launch, n) + db_sums(of_launch, n);
  return static_cast<std::size_t>(sums) * sizeof(float);
}

// As few launches as possible. There are about two blocks for each of 132 multiprocessors, with at least 256 columns,
// since every sum of a block is written and read again.
AdapterGrid AdapterGrid::of(std::int64_t tokens, std::span<const std::int64_t> outputs, std::size_t memory) {
  constexpr std::int64_t kBlocks = 264, kMinTiles = 2;
  std::int64_t tiles = 0;
  for (const std::int64_t n : outputs) tiles += parts(n, kTileColumns);
  for (std::int64_t launches = 1; tokens > 0; ++launches) {
    AdapterGrid grid{.tokens = parts(parts(tokens, launches), kTileRows) * kTileRows};
    const std::int64_t most = std::min(grid.tokens, tokens), splits = parts(most, kMaxBlockRows);
    grid.rows = parts(parts(most, splits), kTileRows) * kTileRows;
    grid.columns = std::max(kMinTiles, parts(tiles * splits, kBlocks)) * kTileColumns;
    if (grid.bytes(most, outputs) <= memory) return grid;
    if (grid.tokens == kTileRows) break;
  }
  return {};
}

void apart(Ctx& ctx, const AdapterGrads& a) {
  for (const AdapterGrads::Layer& l : std::span(a.layers).first(a.count())) {
    check(!l.copy, "adapter_grads: GEMMs do not copy dy");
    gemm(ctx, {.c = l.db,
               .a = l.dy,
               .b = l.u,
               .transpose_a = Transpose::yes,
               .a_stride = a.dy_stride,
               .b_stride = a.u_stride});
    gemm(ctx,
         {.c = store(l.du), .a = l.dy, .b = l.b, .alpha = l.scale, .a_stride = a.dy_stride, .c_stride = a.du_stride});
  }
}

bool reads_once(Ctx& ctx, const AdapterGrads& a) {
  const auto layers = std::span(a.layers).first(a.count());
  return ctx.device().kind == DeviceKind::cuda && a.tokens() > 0 && ctx.kept<AdapterUnits>().mma &&
         std::ranges::all_of(layers, [&](const AdapterGrads::Layer& l) { return can_be_read_once(a, l); }) &&
         fits_in_memory(a);
}

}  // namespace qtrain::ops
