#include "model/projection.h"

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"

namespace qtrain {
namespace {

using ops::Transpose;

// [T, r] at the beginning of memory that other ranks use as well.
template <class Memory>
Memory rank_part(Memory memory, std::int64_t tokens, std::int64_t rank) {
  return memory.reshaped({memory.numel()}).slice(0, tokens * rank).reshaped({tokens, rank});
}
// The scratch of a call holds lora gradients [T, r] first, then one dropped input [T, in].
Tensor input_part(Tensor scratch, const LoraWeights& lora, ConstTensor x) {
  const std::int64_t skip = x.shape[0] * lora.a.shape[0];
  return scratch.slice(skip, x.numel()).reshaped(x.shape);
}

// dropout(x) as the adapter sees it: x itself outside training or without dropout.
ConstTensor adapter_input(Ctx& ctx, const LoraWeights& lora, ConstTensor x, Tensor scratch, ConstTensor seed) {
  if (lora.dropout == 0 || !seed) return x;
  const Tensor dropped = input_part(scratch, lora, x);
  ops::dropout(ctx, {.y = store(dropped), .x = x, .seed = seed, .stream = lora.stream, .p = lora.dropout});
  return dropped;
}

void lora_grad(Ctx& ctx, const LoraWeights& lora, const ProjectionBackward& b) {
  const std::int64_t tokens = b.dy.shape[0], rank = lora.a.shape[0];
  const Tensor d_rank = rank_part(b.scratch, tokens, rank);
  ops::gemm(ctx, {.c = lora.db,
                  .a = b.dy,
                  .b = rank_part(b.lora_x, tokens, rank),
                  .transpose_a = Transpose::yes,
                  .alpha = lora.scale});
  ops::gemm(ctx, {.c = store(d_rank), .a = b.dy, .b = lora.b, .alpha = lora.scale});
  if (lora.da.wanted()) {
    const ConstTensor x = adapter_input(ctx, lora, b.x, b.scratch, b.dropout_seed);
    ops::gemm(ctx, {.c = lora.da, .a = d_rank, .b = x, .transpose_a = Transpose::yes});
  }
  if (!b.dx.wanted()) return;
  const Sink into = accumulate(b.dx.t);
  if (lora.dropout == 0 || !b.dropout_seed) return ops::gemm(ctx, {.c = into, .a = d_rank, .b = lora.a});
  const Tensor d_dropped = input_part(b.scratch, lora, b.dx.t);
  ops::gemm(ctx, {.c = store(d_dropped), .a = d_rank, .b = lora.a});
  ops::dropout(ctx, {.y = into, .x = d_dropped, .seed = b.dropout_seed, .stream = lora.stream, .p = lora.dropout});
}

Shape shape_of(const QuantisedWeight& w) {
  if (const auto* rows = std::get_if<Rows8>(&w)) return rows->codes.shape;
  return std::get<ops::Blocks4>(w).shape;
}

// W as products read it; a quantised one in `memory`.
ConstTensor dense_weight(Ctx& ctx, const Projection& p, Tensor memory) {
  if (!p.quantised) return p.weight;
  const Shape shape = shape_of(*p.quantised);
  const Tensor dense = memory.slice(0, shape.numel()).reshaped(shape);
  expand(ctx, *p.quantised, dense);
  return dense;
}

// y = x W^T + bias
void project_base(Ctx& ctx, const Projection& p, const ProjectionForward& f) {
  const auto* blocks = p.quantised ? std::get_if<ops::Blocks4>(&*p.quantised) : nullptr;
  if (blocks && f.x.shape[0] <= ops::Gemm4::kFewRows)
    return ops::gemm4(ctx, {.c = store(f.y), .a = f.x, .w = *blocks, .bias = p.bias});
  const ConstTensor w = dense_weight(ctx, p, f.dense);
  ops::gemm(ctx, {.c = store(f.y), .a = f.x, .b = w, .transpose_b = Transpose::yes, .bias = p.bias});
}

}  // namespace

void expand(Ctx& ctx, const QuantisedWeight& w, Tensor y) {
  if (const auto* rows = std::get_if<Rows8>(&w))
    ops::dequantise_rows8(ctx, {.y = y, .codes = rows->codes, .scale = rows->scale});
  else
    ops::dequantise4(ctx, {.y = y, .w = std::get<ops::Blocks4>(w)});
}

std::int64_t projection_scratch(std::int64_t tokens, std::int64_t in, std::int64_t rank, double dropout) {
  return tokens * (rank + (dropout > 0 ? in : 0));
}

void project(Ctx& ctx, const Projection& p, const ProjectionForward& f) {
  project_base(ctx, p, f);
  if (!p.lora.present()) return;
  const ConstTensor x = adapter_input(ctx, p.lora, f.x, f.scratch, f.dropout_seed);
  const Tensor lora_x = rank_part(f.lora_x, x.shape[0], p.lora.a.shape[0]);
  ops::gemm(ctx, {.c = store(lora_x), .a = x, .b = p.lora.a, .transpose_b = Transpose::yes});
  ops::gemm(ctx,
            {.c = accumulate(f.y), .a = lora_x, .b = p.lora.b, .transpose_b = Transpose::yes, .alpha = p.lora.scale});
}

void project_grad(Ctx& ctx, const Projection& p, const ProjectionBackward& b) {
  ops::column_sum(ctx, {.y = p.dbias, .x = b.dy});
  ops::gemm(ctx, {.c = p.dweight, .a = b.dy, .b = b.x, .transpose_a = Transpose::yes});
  if (b.dx.wanted()) ops::gemm(ctx, {.c = b.dx, .a = b.dy, .b = dense_weight(ctx, p, b.dense)});
  if (p.lora.present()) lora_grad(ctx, p.lora, b);
}

}  // namespace qtrain
