#include "model/weight_copies.h"

namespace qtrain {
namespace {

Sink sink_of(const Param* p) {
  return p ? p->grad_sink() : discard();
}
ConstTensor value_of(const Param* p) {
  return p ? ConstTensor(p->value) : ConstTensor{};
}

}  // namespace

void WeightCopies::keep_dense(const Parameters& params, DType type) {
  for (const QuantizedLinear& q : params.quantized()) {
    ParamSpec spec{.name = q.name(), .shape = q.shape(), .dtype = type, .init = {}};
    spec.continues = q.continues();
    dense_.declare(std::move(spec));
  }
}

void WeightCopies::keep_operands(const Parameters& params, DType type) {
  if (size_of(type) != 2) return;
  for (const ParamStore* store : params.stores())
    for (const Param& p : store->all()) {
      const bool between = p.trained() && !params.is_looked_up(p);
      if (p.spec.dtype == DType::f32 && (params.is_operand(p) || between)) operands_.keep(p, type);
    }
}

void WeightCopies::allocate() {
  dense_.allocate();
  operands_.allocate();
}

void WeightCopies::fill_dense(Ctx& ctx, const Parameters& params) const {
  if (!has_dense()) return;
  for (const QuantizedLinear& q : params.quantized()) q.expand(ctx, dense_.find(q.name())->value);
}

Projection WeightCopies::acquire(const LinearParams& p, double dropout) const {
  const Param* dense = p.quantized ? dense_.find(p.quantized->name()) : p.weight;
  Projection out{
      .weight = operand(dense), .bias = operand(p.bias), .dweight = sink_of(p.weight), .dbias = sink_of(p.bias)};
  if (!dense) out.quantized = p.quantized->weight();
  if (p.a)
    out.lora = {.a = operand(p.a),
                .b = operand(p.b),
                .magnitude = value_of(p.magnitude),
                .norm = value_of(p.norm),
                .da = sink_of(p.a),
                .db = sink_of(p.b),
                .dmagnitude = sink_of(p.magnitude),
                .scale = p.scale,
                .dropout = dropout,
                .stream = p.stream};
  return out;
}

Projection WeightCopies::acquire_exact(const LinearParams& p, double dropout) const {
  Projection out = acquire(p, dropout);
  if (p.weight) out.weight = p.weight->value;
  out.lora.a = p.a->value;
  out.lora.b = p.b->value;
  return out;
}

ExpertsWeight WeightCopies::acquire(const ExpertsParams& p) const {
  ExpertsWeight out{
      .weight = operand(p.weight), .bias = value_of(p.bias), .dweight = sink_of(p.weight), .dbias = sink_of(p.bias)};
  if (!p.a) return out;
  const std::int64_t E = p.count(), r = p.rank(), rows = p.b->spec.shape[0] / p.parts;
  const auto copied = [&](const Param* factor) { return operands_.of(*factor); };
  const auto matrices = [&](Tensor a) { return a.reshaped({E, r, a.shape[1]}); };
  const auto part = [&](Tensor b) { return b.slice(p.part * rows, rows).reshaped({E, rows / E, r}); };
  out.a = matrices(copied(p.a));
  out.b = part(copied(p.b));
  if (p.a->trained()) out.da = accumulate(matrices(p.a->grad));
  if (p.b->trained()) out.db = accumulate(part(p.b->grad));
  out.scale = p.scale;
  return out;
}

LayerWeights WeightCopies::acquire(const LayerParams& layer, double dropout) const {
  LayerWeights w;
  for (const Param* p : layer.vectors) w.vectors.push_back({.weight = value_of(p), .grad = sink_of(p)});
  for (const LinearParams& p : layer.linears) w.linears.push_back(acquire(p, dropout));
  for (const ExpertsParams& p : layer.experts) w.experts.push_back(acquire(p));
  return w;
}

}  // namespace qtrain
