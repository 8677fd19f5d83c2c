#include "model/projection.h"

#include "kernels/gemm.h"
#include "model/projection_parts.h"

namespace qtrain {
namespace {

using ops::Transpose;

Shape shape_of(const QuantizedWeight& w) {
  if (const auto* rows = std::get_if<Rows8>(&w)) return rows->codes.shape;
  return std::get<ops::Blocks4>(w).shape;
}

// y = x W^T + bias + the adapter's contribution, if there is one. For few rows, the codes of W are used directly.
void project_sum(Ctx& ctx, const ProjectionForward& f, const ProjectionForward::Layer& l, const ops::Factors& adapter) {
  const Projection& p = l.layer;
  const ConstTensor bias = p.lora.decomposed() ? ConstTensor{} : p.bias;
  const std::int64_t rows = f.x.shape[0];
  const auto* blocks = p.quantized ? std::get_if<ops::Blocks4>(&*p.quantized) : nullptr;
  const auto* rows8 = p.quantized ? std::get_if<Rows8>(&*p.quantized) : nullptr;
  if (blocks && rows <= ops::Gemm4::kFewRows)
    return ops::gemm4(ctx, {.c = store(l.y), .a = f.x, .w = *blocks, .bias = bias, .added = adapter});
  if (rows8 && ops::GemmRows8::takes(ctx.device(), rows))
    return ops::gemm_rows8(
        ctx, {.c = store(l.y), .a = f.x, .codes = rows8->codes, .scale = rows8->scale, .bias = bias, .added = adapter});
  ops::gemm(ctx, {.c = store(l.y),
                  .a = f.x,
                  .b = dense_weight(ctx, p, f.dense),
                  .transpose_b = Transpose::yes,
                  .bias = bias,
                  .added = {adapter},
                  .fp8 = forward_fp8(p)});
}

// Likewise for any adapter: with a magnitude, the sum is multiplied by m / norm before the bias is added.
void project_layer(Ctx& ctx, const ProjectionForward& f, const ProjectionForward::Layer& l,
                   const ops::Factors& adapter) {
  project_sum(ctx, f, l, adapter);
  if (!l.layer.lora.decomposed()) return;
  ops::ScaleToMagnitude scale = scaling(l.layer.lora, store(l.y), l.y);
  scale.bias = l.layer.bias;
  ops::scale_to_magnitude(ctx, scale);
}

// With a magnitude and dropout: y = x W^T + bias + (m / norm - 1) dropout(x) W^T + m / norm times the adapter's GEMM.
void project_dropped(Ctx& ctx, const ProjectionForward& f, const ProjectionForward::Layer& l,
                     const DroppedAdapter& adapter) {
  const Projection& p = l.layer;
  const ConstTensor w = dense_weight(ctx, p, f.dense);
  const Tensor part = adapter.input.results(l.y.shape);
  ops::gemm(ctx, {.c = store(l.y), .a = f.x, .b = w, .transpose_b = Transpose::yes, .bias = p.bias});
  ops::gemm(ctx, {.c = store(part), .a = adapter.input.memory(f.x.shape), .b = w, .transpose_b = Transpose::yes});
  ops::ScaleToMagnitude scale = scaling(p.lora, accumulate(l.y), part);
  scale.shift = -1;
  ops::scale_to_magnitude(ctx, scale);
  const ops::Factors& factors = adapter.factors;
  ops::gemm(
      ctx,
      {.c = store(part), .a = factors.a, .b = factors.b, .transpose_b = Transpose::yes, .a_stride = factors.a_stride});
  ops::scale_to_magnitude(ctx, scaling(p.lora, accumulate(l.y), part));
}

}  // namespace

void expand(Ctx& ctx, const QuantizedWeight& w, Tensor y) {
  if (const auto* rows = std::get_if<Rows8>(&w))
    ops::dequantize_rows8(ctx, {.y = y, .codes = rows->codes, .scale = rows->scale});
  else
    ops::dequantize4(ctx, {.y = y, .w = std::get<ops::Blocks4>(w)});
}

ConstTensor dense_weight(Ctx& ctx, const Projection& p, Tensor memory) {
  if (!p.quantized) return p.weight;
  const Shape shape = shape_of(*p.quantized);
  const Tensor dense = memory.slice(0, shape.numel()).reshaped(shape);
  expand(ctx, *p.quantized, dense);
  return dense;
}

void measure_rows(Ctx& ctx, const Projection& p, Tensor norm, Tensor dense) {
  const LoraWeights& lora = p.lora;
  ops::row_norms(ctx, {.norm = norm, .w = dense_weight(ctx, p, dense), .a = lora.a, .b = lora.b, .scale = lora.scale});
}

std::int64_t projection_scratch(const ProjectionSizes& sizes, double dropout) {
  return sizes.tokens * (sizes.ranks + (dropout > 0 ? sizes.in : 0) + sizes.decomposed);
}

void project(Ctx& ctx, const ProjectionForward& f) {
  const Adapters adapters(f.layers);
  if (adapters.empty()) {
    for (const auto& l : f.layers) project_layer(ctx, f, l, {});
    return;
  }
  const RankColumns lora_x(f.lora_x, f.x.shape[0], adapters.ranks());
  const AdapterInput input(adapters, f.dropout_seed, f.scratch);
  const ConstTensor x = input.of(ctx, f.x);
  for (const Stack& s : adapters.stacks())
    ops::gemm(ctx, {.c = store(lora_x.columns(s.first, s.ranks())),
                    .a = x,
                    .b = s.a,
                    .transpose_b = Transpose::yes,
                    .alpha = s.scale,
                    .c_stride = lora_x.stride()});
  std::int64_t first = 0;
  for (const auto& l : f.layers) {
    const LoraWeights& lora = l.layer.lora;
    const ops::Factors adapter = lora_x.times_b(first, lora);
    if (lora.decomposed() && input.drops())
      project_dropped(ctx, f, l, {adapter, input});
    else
      project_layer(ctx, f, l, adapter);
    first += lora.rank();
  }
}

}  // namespace qtrain
