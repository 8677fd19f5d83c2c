#include "model/execution_plan.h"

#include <algorithm>

#include "kernels/fp8.h"
#include "model/activation_layout.h"

namespace qtrain {
namespace {

/// The largest number of elements that one kind of parameter has in any group of layers.
struct LargestGroup {
  const Transformer& model;
  const OperandCopies& operands;
  DType type;  ///< of the GEMMs

  /// Counts the parameters that GEMMs convert because they have another type and no operand copy.
  std::int64_t operator()(Param* LinearParams::*which, bool joined_only) const {
    std::int64_t max = 0;
    for (std::size_t l = 0; l < model.layers().size(); ++l)
      for (const LinearGroup& group : model.layers()[l].groups) {
        if (joined_only && group.results == ResultLayout::apart) continue;
        std::int64_t elements = 0;
        for (const LinearId id : group.layers) {
          const Param* p = model.params().layers()[l][id].*which;
          if (p && p->spec.dtype != type && !operands.has(*p)) elements += p->spec.shape.numel();
        }
        max = std::max(max, elements);
      }
    return max;
  }
};

}  // namespace

ExecutionPlan::ExecutionPlan(const Transformer& model, const ExecutionChoice& choice, std::vector<PlannedPass> passes)
    : model_(model), choice_(choice), passes_(std::move(passes)) {
  const RecomputePolicy& policy = choice.recompute.policy;
  if (offloads_inputs() && !policy.whole_blocks())
    fail(ErrorKind::usage, {.cause = "recompute policy " + policy.name() +
                                     " saves more than the inputs of blocks, which cannot be offloaded",
                            .remedy = "use block or blocks:N"});
  for (const PlannedPass& p : passes_) longest_ = std::max(longest_, p.largest.positions);
  const WeightCopies none(model.device());
  for (std::size_t l = 0; l < model.layers().size(); ++l) {
    const Layer& layer = model.layers()[l];
    recompute_.push_back(
        plan_recompute(layer, policy.recomputed(layer), none.acquire(model.params().layers()[l], model.dropout())));
  }
}

std::int64_t ExecutionPlan::most_tokens(Pass pass) const {
  std::int64_t most = 0;
  for (const PlannedPass& p : passes_)
    if (p.pass == pass) most = std::max(most, p.largest.tokens);
  return most;
}

std::int64_t ExecutionPlan::groups() const {
  return (model_.config().layers + group() - 1) / group();
}

// Each chunk reads the head's weight and adds to its gradient, which on a GPU takes longer than the GEMMs of a few
// rows; on a CPU a small chunk stays in the caches.
HeadChunk ExecutionPlan::head_chunk(Pass pass) const {
  const DType dtype = model_.options().activation_dtype;
  HeadChunk chunk{.logits = model_.options().full_dtype()};
  if (dtype == DType::bf16 && pass == Pass::train) chunk.logits = DType::bf16;
  const std::int64_t bytes = std::int64_t{model_.device().kind == DeviceKind::cuda ? 1024 : 64} << 20;
  const std::int64_t row = model_.config().vocab_size * static_cast<std::int64_t>(size_of(chunk.logits));
  chunk.rows = std::max<std::int64_t>(bytes / row, 32);
  return chunk;
}

Activations ExecutionPlan::lay_out(ActivationArenas& arenas, Pass pass, BatchSize size) const {
  check(size.positions <= longest_, "a sequence is longer than planned");
  size.positions = longest_;
  return ActivationLayout(model_, *this, {pass, size}).lay_out(arenas);
}

ActivationBytes ExecutionPlan::lay_out_all(ActivationArenas& arenas) const {
  ActivationBytes max;
  for (const PlannedPass& p : passes_) {
    arenas.reset();
    const Activations a = lay_out(arenas, p.pass, p.largest);
    if (const std::size_t used = arenas.device.used(); used > max.total)
      max = {.total = used, .head = a.head.bytes, .dense = a.dense ? a.dense.bytes() : 0, .gathered = a.gathered.bytes};
  }
  max.pinned = arenas.pinned.planned();
  return max;
}

// Reserves memory for operands in FP8: inputs and gradients [T, ...], weights that GEMMs do not read as they are
// stored, and transposed inputs and gradients for the gradients of weights. Layers with joined results are one GEMM.
void ExecutionPlan::reserve_fp8(ops::GemmMemory& memory) const {
  const auto& stored = model_.options().quantization ? model_.options().quantization->fp8 : std::nullopt;
  const bool in_blocks = model_.options().has_fp8_blocks();
  const bool fits = stored && (in_blocks ? stored->has_squares() : stored->has_one_scale() && !stored->of_files);
  const bool reads = fits && choice_.dense_copies == KeepCopies::no;
  bool quantized = false;
  const auto multiply = [&](std::int64_t m, std::int64_t n, std::int64_t k, ops::Fp8Block of_b) {
    using enum ops::Fp8Block;
    memory.converted_a = std::max(memory.converted_a, ops::fp8_bytes_of_a(in_blocks ? vector : matrix, {m, n, k}));
    if (!reads || !quantized || n % ops::kFp8Row != 0 || k % ops::kFp8Row != 0)
      memory.converted_b = std::max(memory.converted_b, ops::fp8_bytes(in_blocks ? of_b : matrix, n, k));
  };
  const auto layer_gemms = [&](std::int64_t in, std::int64_t out, bool trained) {
    for (const PlannedPass& p : passes_) {
      const std::int64_t tokens = p.largest.tokens;
      if (p.pass == Pass::decode) continue;
      multiply(tokens, out, in, ops::Fp8Block::square);
      if (p.pass == Pass::evaluate) continue;
      multiply(tokens, in, out, ops::Fp8Block::square);
      if (trained) multiply(out, in, tokens, ops::Fp8Block::vector);
    }
  };
  for (std::size_t l = 0; l < model_.layers().size(); ++l)
    for (const LinearGroup& group : model_.layers()[l].groups) {
      std::int64_t all = 0, in = 0;
      bool any = false, all_quantized = true;
      for (const LinearId id : group.layers) {
        const LinearParams& linear = model_.params().layers()[l][id];
        if (linear.kind == LinearKind::router) continue;
        quantized = linear.quantized != nullptr;
        const bool in_squares = all % ops::kFp8Block == 0;  // the layer's first row begins one
        all_quantized = all_quantized && quantized && (!in_blocks || in_squares);
        const bool trained = linear.weight && linear.weight->trained();
        in = linear.shape()[1];
        layer_gemms(in, linear.shape()[0], trained);
        all += linear.shape()[0];
        any = any || trained;
      }
      quantized = all_quantized;
      if (group.results != ResultLayout::apart) layer_gemms(in, all, any);
    }
}

// Activations have the GEMMs' operand type on a GPU; weights and logits may have another. Weights with an operand copy
// need no conversion.
ops::GemmMemory ExecutionPlan::gemm_memory(const OperandCopies& operands) const {
  const DType type = model_.options().activation_dtype;
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * size_of(type); };
  ops::GemmMemory memory;
  for (const ParamStore* store : model_.params().stores())
    for (const Param& p : store->all()) {
      if (p.spec.dtype == type || !model_.params().is_operand(p) || operands.has(p)) continue;
      std::size_t& max = p.spec.shape.rank == 2 ? memory.converted_b : memory.converted_bias;
      max = std::max(max, bytes(p.spec.shape.numel()));
    }
  // The A of adapters that read the same input are one operand, as are the weights of layers with joined results.
  const LargestGroup largest{model_, operands, type};
  memory.converted_b = std::max(
      {memory.converted_b, bytes(largest(&LinearParams::a, false)), bytes(largest(&LinearParams::weight, true))});
  memory.converted_bias = std::max(memory.converted_bias, bytes(largest(&LinearParams::bias, true)));
  if (model_.options().fp8) reserve_fp8(memory);
  const HeadChunk chunk = head_chunk(Pass::train);
  if (chunk.logits == type) return memory;
  for (const PlannedPass& p : passes_)
    if (p.pass == Pass::train)
      memory.converted_a =
          std::max(memory.converted_a, bytes(std::min(chunk.rows, p.largest.targets) * model_.config().vocab_size));
  return memory;
}

}  // namespace qtrain
