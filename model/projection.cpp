#include "model/projection.h"

#include <algorithm>

#include "kernels/gemm.h"
#include "model/projection_parts.h"

namespace qtrain {
namespace {

using ops::Transpose;

// Whether GEMMs with this many rows read 4-bit codes directly. Then the layers of a group are computed one by one.
bool reads_codes(const Projection& p, std::int64_t rows) {
  return p.quantized && std::holds_alternative<ops::Blocks4>(*p.quantized) && rows <= ops::Gemm4::kFewRows;
}

// The result of a GEMM of few rows, which has no operand for a residual: y already contains it.
Sink sum_with_residual(Ctx& ctx, const ProjectionForward& f, Tensor y) {
  if (!f.residual) return store(y);
  ops::copy(ctx, {.y = store(y), .x = f.residual});
  return accumulate(y);
}

// y = x W^T + bias + the adapter's contribution, if there is one, + the residual, if there is one. For few rows, the
// codes of W are used directly.
void project_sum(Ctx& ctx, const ProjectionForward& f, const ProjectionForward::Layer& l, const ops::Factors& adapter) {
  const Projection& p = l.layer;
  const ConstTensor bias = p.lora.decomposed() ? ConstTensor{} : p.bias;
  const std::int64_t rows = f.x.shape[0];
  const auto* rows8 = p.quantized ? std::get_if<Rows8>(&*p.quantized) : nullptr;
  if (reads_codes(p, rows))
    return ops::gemm4(ctx, {.c = sum_with_residual(ctx, f, l.y),
                            .a = f.x,
                            .w = std::get<ops::Blocks4>(*p.quantized),
                            .bias = bias,
                            .added = adapter,
                            .c_stride = f.y_stride});
  if (rows8 && f.y_stride == 0 && ops::GemmRows8::takes(ctx.device(), rows))
    return ops::gemm_rows8(ctx, {.c = sum_with_residual(ctx, f, l.y),
                                 .a = f.x,
                                 .codes = rows8->codes,
                                 .scale = rows8->scale,
                                 .bias = bias,
                                 .added = adapter});
  ops::Gemm g{.c = store(l.y),
              .a = f.x,
              .transpose_b = Transpose::yes,
              .bias = bias,
              .c_stride = f.y_stride,
              .residual = f.residual,
              .added = {adapter},
              .fp8 = fp8_of(p, GemmOfLayer::forward, f.x_largest)};
  set_weight(ctx, g, Joint(l), f.dense);
  ops::gemm(ctx, g);
}

// Likewise for any adapter: with a magnitude, the sum is multiplied by m / norm before the bias is added.
void project_layer(Ctx& ctx, const ProjectionForward& f, const ProjectionForward::Layer& l,
                   const ops::Factors& adapter) {
  project_sum(ctx, f, l, adapter);
  if (!l.layer.lora.decomposed()) return;
  check(f.y_stride == 0, "a layer with a magnitude writes to a tensor of its own");
  ops::ScaleToMagnitude scale = scaling(l.layer.lora, store(l.y), l.y);
  scale.bias = l.layer.bias;
  ops::scale_to_magnitude(ctx, scale);
}

// With a magnitude and dropout: y = x W^T + bias + (m / norm - 1) dropout(x) W^T + m / norm times the adapter's GEMM.
void project_dropped(Ctx& ctx, const ProjectionForward& f, const ProjectionForward::Layer& l,
                     const DroppedAdapter& adapter) {
  const Projection& p = l.layer;
  check(f.y_stride == 0, "a layer with a magnitude writes to a tensor of its own");
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

using JointForward = Joint<ProjectionForward::Layer>;

std::vector<JointForward> joints_of(const ProjectionForward& f) {
  const bool apart = reads_codes(f.layers.front().layer, f.x.shape[0]);
  return joints_of(f.layers, apart ? 0 : f.y_stride);
}

void project_joint(Ctx& ctx, const ProjectionForward& f, const JointForward& joint, Sink::Mode mode) {
  ops::Gemm g{.c = {joint.result(), mode},
              .a = f.x,
              .transpose_b = Transpose::yes,
              .bias = joint.bias(),
              .c_stride = f.y_stride,
              .fp8 = fp8_of(joint.first(), GemmOfLayer::forward, f.x_largest)};
  set_weight(ctx, g, joint, f.dense);
  ops::gemm(ctx, g);
}

// y = or += the adapter's contribution.
void put_adapter(Ctx& ctx, const ProjectionForward& f, const Sink& y, const ops::Factors& adapter) {
  if (!adapter.present()) return;
  ops::Gemm g = ops::added_to(y.t, adapter, 1);
  g.c.mode = y.mode;
  g.c_stride = f.y_stride;
  ops::gemm(ctx, g);
}

// The contributions of adapters come first if they write all of y: see added_first in kernels/gemm.cpp.
void project_joint_with_adapters(Ctx& ctx, const ProjectionForward& f, const JointForward& joint,
                                 const RankColumns<Tensor>& lora_x, std::int64_t first) {
  using enum Sink::Mode;
  const bool all = std::ranges::all_of(joint.layers(), [](const auto& l) { return l.layer.lora.present(); });
  if (!all) project_joint(ctx, f, joint, store);
  for (const auto& l : joint.layers()) {
    put_adapter(ctx, f, {l.y, all ? store : accumulate}, lora_x.times_b(first, l.layer.lora));
    first += l.layer.lora.rank();
  }
  if (all) project_joint(ctx, f, joint, accumulate);
}

void project_bases(Ctx& ctx, const ProjectionForward& f) {
  for (const JointForward& joint : joints_of(f))
    if (joint.is_one())
      project_layer(ctx, f, joint.layers().front(), {});
    else
      project_joint(ctx, f, joint, Sink::Mode::store);
}

// lora_x = scale * A x.
void multiply_by_a(Ctx& ctx, const ProjectionForward& f, const Adapters& adapters, ConstTensor x) {
  const RankColumns lora_x(f.lora_x, f.x.shape[0], adapters.ranks());
  for (const Stack& s : adapters.stacks())
    ops::gemm(ctx, {.c = store(lora_x.columns(s.first, s.ranks())),
                    .a = x,
                    .b = s.a,
                    .transpose_b = Transpose::yes,
                    .alpha = s.scale,
                    .c_stride = lora_x.stride()});
}

}  // namespace

void expand(Ctx& ctx, const QuantizedWeight& w, Tensor y) {
  if (const auto* rows = std::get_if<Rows8>(&w))
    ops::dequantize_rows8(ctx, {.y = y, .codes = rows->codes, .scale = rows->scale});
  else if (const auto* fp8 = std::get_if<Fp8Weight>(&w))
    ops::expand_fp8(ctx, {.y = y, .codes = fp8->codes, .scales = fp8->scales, .block = fp8->block});
  else
    ops::dequantize4(ctx, {.y = y, .w = std::get<ops::Blocks4>(w)});
}

void expand(Ctx& ctx, const QuantizedWeight& w, const SpacedRows& to) {
  if (const auto* rows = std::get_if<Rows8>(&w))
    ops::dequantize_rows8(ctx, {.y = to.y, .codes = rows->codes, .scale = rows->scale, .y_stride = to.stride});
  else if (const auto* blocks = std::get_if<ops::Blocks4>(&w))
    ops::dequantize4(ctx, {.y = to.y, .w = *blocks, .y_stride = to.stride});
  else
    check(false, "weights in FP8 are not expanded beside adapters");
}

Shape shape_of(const Projection& p) {
  if (!p.quantized) return p.weight.shape;
  if (const auto* rows = std::get_if<Rows8>(&*p.quantized)) return rows->codes.shape;
  if (const auto* fp8 = std::get_if<Fp8Weight>(&*p.quantized)) return fp8->codes.shape;
  return std::get<ops::Blocks4>(*p.quantized).shape;
}

ConstTensor dense_weight(Ctx& ctx, const Projection& p, Tensor memory) {
  if (!p.quantized) return p.weight;
  const Shape shape = shape_of(p);
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

void project_to_ranks(Ctx& ctx, const ProjectionForward& f) {
  const Adapters adapters(f.layers);
  if (adapters.empty()) return;
  if (f.x_stride != 0) return multiply_beside_x(ctx, f, adapters);
  const ConstTensor x = AdapterInput(adapters, f.dropout_seed, f.scratch).of(ctx, f.x);
  multiply_by_a(ctx, f, adapters, x);
}

void project(Ctx& ctx, const ProjectionForward& f) {
  check(!f.residual || (f.layers.size() == 1 && !f.layers.front().layer.lora.decomposed()),
        "a residual is added to one layer without a magnitude");
  const Adapters adapters(f.layers);
  if (adapters.empty()) return project_bases(ctx, f);
  if (f.x_stride != 0) return project_with_adapters(ctx, f, adapters);
  const RankColumns lora_x(f.lora_x, f.x.shape[0], adapters.ranks());
  const AdapterInput input(adapters, f.dropout_seed, f.scratch);
  multiply_by_a(ctx, f, adapters, input.of(ctx, f.x));
  std::int64_t first = 0;
  for (const JointForward& joint : joints_of(f)) {
    if (!joint.is_one()) project_joint_with_adapters(ctx, f, joint, lora_x, first);
    for (const auto& l : joint.layers()) {
      const LoraWeights& lora = l.layer.lora;
      const ops::Factors adapter = lora_x.times_b(first, lora);
      first += lora.rank();
      if (!joint.is_one()) continue;
      if (lora.decomposed() && input.drops())
        project_dropped(ctx, f, l, {adapter, input});
      else
        project_layer(ctx, f, l, adapter);
    }
  }
}

}  // namespace qtrain
