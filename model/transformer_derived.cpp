// What a model derives from its weights: copies that products read, and the lengths of rows.
#include <algorithm>

#include "kernels/elementwise.h"
#include "model/transformer.h"

namespace qtrain {

Projection Transformer::exact_linear(const ProjectionParams& p) const {
  Projection out = acquire_linear(p);
  if (p.weight) out.weight = p.weight->value;
  out.lora.a = p.a->value;
  out.lora.b = p.b->value;
  return out;
}

void Transformer::keep_dense_copies() {
  check(planned_.empty(), "dense copies are chosen before activations are planned");
  for (BlockParams& block : blocks_)
    for (ProjectionParams& p : block.linear)
      if (p.quantized && !p.copy)
        p.copy = &copies_.declare(
            {.name = p.quantized->name(), .shape = p.quantized->shape(), .dtype = options_.dense_dtype, .init = {}});
}

std::size_t Transformer::dense_copy_bytes() const {
  Arena measured("dense copies", device());
  for (const QuantizedLinear& q : quantized_) measured.take(options_.dense_dtype, q.shape());
  return measured.planned();
}

std::size_t Transformer::largest_dense_bytes() const {
  return static_cast<std::size_t>(largest_quantized()) * size_of(options_.dense_dtype);
}

std::int64_t Transformer::largest_quantized() const {
  std::int64_t most = 0;
  for (const QuantizedLinear& q : quantized_) most = std::max(most, q.shape().numel());
  return most;
}

bool Transformer::is_looked_up(const Param& p) const {
  return &p == embedding_.a || (&p == embedding_.weight && !has_tied_head());
}

// Biases are added by the products.
bool Transformer::is_operand(const Param& p) const {
  const bool multiplied = p.spec.shape.rank == 2 || p.spec.name.ends_with(".bias");
  return multiplied && is_float(p.spec.dtype) && !is_looked_up(p) && !is_quantized_part(p);
}

// What products read, and trained vectors between them.
void Transformer::declare_operand_copies(OperandCopies& copies) const {
  if (size_of(options_.activation_dtype) != 2) return;
  for (const ParamStore* store : {&weights_, &adapter_})
    for (const Param& p : store->all()) {
      const bool between = p.trained() && !is_looked_up(p);
      if (p.spec.dtype == DType::f32 && (is_operand(p) || between)) copies.keep(p, options_.activation_dtype);
    }
}

// There activations have the type of the operands; weights and logits may have another. What is copied is not
// converted.
ops::GemmMemory Transformer::product_memory(const std::vector<PlannedPass>& passes) const {
  const DType type = options_.activation_dtype;
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * size_of(type); };
  ops::GemmMemory memory;
  for (const ParamStore* store : {&weights_, &adapter_})
    for (const Param& p : store->all()) {
      if (p.spec.dtype == type || !is_operand(p) || operands_.has(p)) continue;
      std::size_t& most = p.spec.shape.rank == 2 ? memory.converted_b : memory.converted_bias;
      most = std::max(most, bytes(p.spec.shape.numel()));
    }
  if (type != DType::f32 && type != DType::f64)
    memory.converted_b = std::max(memory.converted_b, bytes(largest_stack()));
  const HeadChunk chunk = plan_head_chunk(activation_plan(), Pass::train);
  if (chunk.logits == type) return memory;
  for (const PlannedPass& p : passes)
    if (p.pass == Pass::train)
      memory.converted_a =
          std::max(memory.converted_a, bytes(std::min(chunk.rows, p.largest.targets) * config().vocab_size));
  return memory;
}

void Transformer::keep_operand_copies() {
  check(planned_.empty(), "copies of weights are chosen before activations are planned");
  if (operands_.bytes() == 0) declare_operand_copies(operands_);
}

std::size_t Transformer::operand_copy_bytes() const {
  OperandCopies measured(device());
  declare_operand_copies(measured);
  return measured.bytes();
}

void Transformer::fill_dense_copies(Ctx& ctx) {
  if (!keeps_dense_copies()) return;
  for (const QuantizedLinear& q : quantized_) q.expand(ctx, copies_.find(q.name())->value);
}

void Transformer::measure_rows(Ctx& ctx) {
  if (norms_.all().empty()) return;
  const bool expands = !quantized_.empty() && !keeps_dense_copies();
  if (expands && !act_.dense) begin(ctx, planned_.front().pass, planned_.front().largest);
  const auto measure = [&](const ProjectionParams& p) {
    if (p.norm) qtrain::measure_rows(ctx, exact_linear(p), p.norm->value, act_.dense);
  };
  for (const BlockParams& block : blocks_)
    for (const ProjectionParams& p : block.linear) measure(p);
  measure(head_);
}

void Transformer::initialize_magnitudes(Ctx& ctx) {
  measure_rows(ctx);
  const auto begin = [&](const ProjectionParams& p) {
    if (p.magnitude) ops::copy(ctx, {.y = store(p.magnitude->value), .x = p.norm->value});
  };
  for (const BlockParams& block : blocks_)
    for (const ProjectionParams& p : block.linear) begin(p);
  begin(head_);
}

}  // namespace qtrain
