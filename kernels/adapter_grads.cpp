#include "kernels/adapter_grads.h"

#include <algorithm>

namespace qtrain::ops {
namespace {

constexpr std::int64_t kInChunk = 8, kMaxRanks = 32;  // 16-bit elements in 16 bytes; of an adapter

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
         l.u.shape[1] <= kMaxRanks && in_chunks(l.dy, a.dy_stride) && in_chunks(l.u, a.u_stride) &&
         in_chunks(l.du, a.du_stride) && in_chunks(l.b, 0) && l.db.wanted() && l.db.t.dtype == DType::f32 &&
         in_chunks(l.db.t, 0) && (!l.copy || in_chunks(l.copy, a.copy_stride));
}

}  // namespace

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
         std::ranges::all_of(layers, [&](const AdapterGrads::Layer& l) { return can_be_read_once(a, l); });
}

}  // namespace qtrain::ops
