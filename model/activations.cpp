#include "model/activations.h"

#include <algorithm>

namespace qtrain {
namespace {

constexpr SlotSet kResidual{Slot::x, Slot::proj, Slot::mid, Slot::down, Slot::out};
constexpr SlotSet kStatistics{Slot::rms1, Slot::rms2, Slot::q_rms, Slot::k_rms, Slot::lse};
constexpr SlotSet kLora{Slot::lora_qkv, Slot::lora_o, Slot::lora_gate_up, Slot::lora_down};

Shape slot_shape(Slot slot, const ActivationPlan& plan, std::int64_t tokens) {
  const ModelConfig& c = *plan.config;
  switch (slot) {
    case Slot::lora_qkv: return {tokens, plan.lora_ranks.qkv};
    case Slot::lora_o: return {tokens, plan.lora_ranks.o};
    case Slot::lora_gate_up: return {tokens, plan.lora_ranks.gate_up};
    case Slot::lora_down: return {tokens, plan.lora_ranks.down};
    case Slot::rms1:
    case Slot::rms2: return {tokens};
    case Slot::q_rms: return {c.qk_norm ? tokens : 0, c.heads};
    case Slot::k_rms: return {c.qk_norm ? tokens : 0, c.kv_heads};
    case Slot::lse: return {c.heads, tokens};
    case Slot::q:
    case Slot::q_rot:
    case Slot::att: return {tokens, c.heads * c.head_dim};
    case Slot::k:
    case Slot::k_rot:
    case Slot::v: return {tokens, c.kv_heads * c.head_dim};
    case Slot::gate:
    case Slot::up:
    case Slot::act: return {tokens, c.intermediate_size};
    default: return {tokens, c.hidden_size};
  }
}

// Rows of the loss head that are computed at a time.
std::int64_t head_rows(const ActivationPlan& plan, Pass pass, std::int64_t targets) {
  if (pass == Pass::decode) return targets;
  return std::clamp<std::int64_t>(targets, 1, plan_head_chunk(plan, pass).rows);
}

struct Builder {
  Arena& arena;
  const ActivationPlan& plan;
  std::int64_t tokens;

  Tensor take(Slot slot) const {
    // Statistics stay in f32 when activations are narrower.
    const DType dtype = kStatistics.has(slot) && plan.dtype != DType::f64 ? DType::f32 : plan.dtype;
    return arena.take(dtype, slot_shape(slot, plan, tokens));
  }

  // The input of each block, and the output of the last. In training the first block of a group has its own (one of
  // two in turn, where they travel to the host) and the others share theirs with those of other groups; else only two
  // are in use at a time.
  std::vector<Tensor> residual_stream(Pass pass) const {
    const bool train = pass == Pass::train;
    const std::int64_t layers = plan.config->layers, period = train ? plan.recompute.group : 2;
    const std::int64_t turn = train && plan.inputs == BlockInputs::host ? 2 * period : layers;
    std::vector<Tensor> stream;
    const auto at = [&](std::int64_t l) { return stream[static_cast<std::size_t>(l)]; };
    for (std::int64_t l = 0; l <= layers; ++l) {
      if (train && l == layers)
        stream.push_back(take(Slot::x));
      else if (train && l % period == 0)
        stream.push_back(l < turn ? take(Slot::x) : at(l - turn));
      else
        stream.push_back(l < period ? take(Slot::x) : at(l % period));
    }
    return stream;
  }

  // Slots without memory of their own share one set.
  void add_layers(Activations& a, Pass pass) const {
    const SlotSet stash = pass == Pass::train ? plan.recompute.stash : SlotSet{};
    const SlotSet stream_slots{Slot::x, Slot::out};
    const auto take_all = [&](Slots& into, SlotSet slots) {
      for (int i = 0; i < kSlots; ++i)
        if (const auto slot = static_cast<Slot>(i); slots.has(slot)) into[slot] = take(slot);
    };
    Slots shared;
    take_all(shared, kAllSlots - stash - stream_slots);
    const std::vector<Tensor> stream = residual_stream(pass);
    for (std::size_t l = 0; l + 1 < stream.size(); ++l) {
      Slots s = shared;
      take_all(s, stash - stream_slots);
      s[Slot::x] = stream[l];
      s[Slot::out] = stream[l + 1];
      a.layers.push_back(s);
    }
    a.final_hidden = stream.back();
  }

  void add_grads(Activations& a) const {
    a.residual_grad = take(Slot::x);
    for (int i = 0; i < kSlots; ++i) {
      const auto slot = static_cast<Slot>(i);
      if (kResidual.has(slot))
        a.grads[slot] = a.residual_grad;
      else if (!kStatistics.has(slot) && !kLora.has(slot))
        a.grads[slot] = take(slot);
    }
  }

  void add_head(Activations& a, Pass pass, std::int64_t targets) const {
    const ModelConfig& c = *plan.config;
    const DType statistics = plan.dtype == DType::f64 ? DType::f64 : DType::f32;
    const DType logits = plan_head_chunk(plan, pass).logits;
    const std::int64_t rows = head_rows(plan, pass, targets);
    a.head.hidden = arena.take(plan.dtype, {rows, c.hidden_size});
    a.head.normed = arena.take(plan.dtype, {rows, c.hidden_size});
    a.head.inv_rms = arena.take(statistics, {rows});
    a.head.logits = arena.take(logits, {rows, c.vocab_size});
    if (plan.head_rank > 0) a.head.lora_x = arena.take(plan.dtype, {rows, plan.head_rank});
    if (pass == Pass::decode) return;
    a.head.loss = arena.take(statistics, {rows});
    if (pass != Pass::train) return;
    a.head.d_hidden = arena.take(plan.dtype, {rows, c.hidden_size});
    a.head.d_normed = arena.take(plan.dtype, {rows, c.hidden_size});
  }
};

}  // namespace

// Each chunk reads the head's weight and adds to its gradient, which on a GPU takes longer than the products of a few
// rows; on a processor a small chunk stays in its caches.
HeadChunk plan_head_chunk(const ActivationPlan& plan, Pass pass) {
  HeadChunk chunk{.logits = plan.dtype == DType::f64 ? DType::f64 : DType::f32};
  if (plan.dtype == DType::bf16 && pass == Pass::train) chunk.logits = DType::bf16;
  const std::int64_t bytes = std::int64_t{plan.device == DeviceKind::cuda ? 1024 : 64} << 20;
  const std::int64_t row = plan.config->vocab_size * static_cast<std::int64_t>(size_of(chunk.logits));
  chunk.rows = std::max<std::int64_t>(bytes / row, 32);
  return chunk;
}

namespace {

std::int64_t scratch_elements(const ActivationPlan& plan, Pass pass, const BatchSize& size) {
  const ModelConfig& c = *plan.config;
  const std::int64_t ranks = std::max(plan.lora_ranks.most(), plan.head_rank);
  const bool train = pass == Pass::train;
  if (ranks == 0) return 0;
  const std::int64_t blocks =
      projection_scratch({.tokens = size.tokens,
                          .in = std::max({c.hidden_size, c.intermediate_size, c.heads * c.head_dim}),
                          .ranks = ranks,
                          .decomposed = train ? plan.widest_decomposed : 0},
                         plan.lora_dropout);
  if (!train || !plan.head_decomposed) return blocks;
  return std::max(blocks, projection_scratch({.tokens = head_rows(plan, pass, size.targets),
                                              .in = c.hidden_size,
                                              .ranks = plan.head_rank,
                                              .decomposed = c.vocab_size},
                                             plan.lora_dropout));
}

}  // namespace

void ActivationArenas::reset() {
  device.reset();
  pinned.reset();
}

void ActivationArenas::commit() {
  device.commit();
  pinned.commit();
}

Activations lay_out_activations(ActivationArenas& arenas, const ActivationPlan& plan, Pass pass, BatchSize size) {
  Arena& arena = arenas.device;
  Activations a;
  const ModelConfig& c = *plan.config;
  const DType tables = plan.dtype == DType::f64 ? DType::f64 : DType::f32;
  a.cos = arena.take(tables, {size.positions, c.head_dim / 2});
  a.sin = arena.take(tables, {size.positions, c.head_dim / 2});
  const Builder b{arena, plan, size.tokens};
  b.add_layers(a, pass);
  if (pass == Pass::train && plan.inputs == BlockInputs::host)
    for (std::int64_t l = 0; l < c.layers; l += plan.recompute.group)
      a.host_inputs.push_back(arenas.pinned.take(plan.dtype, {size.tokens, c.hidden_size}));
  if (const std::int64_t elements = scratch_elements(plan, pass, size); elements > 0)
    a.scratch = arena.take(plan.dtype, {elements});
  if (plan.embedding_rank > 0) a.lora_rows = arena.take(plan.dtype, {size.tokens, plan.embedding_rank});
  if (plan.dense.elements > 0) a.dense = arena.take(plan.dense.dtype, {plan.dense.elements});
  if (pass == Pass::train) b.add_grads(a);
  const std::size_t before = arena.used();
  b.add_head(a, pass, size.targets);
  a.head.bytes = arena.used() - before;
  return a;
}

}  // namespace qtrain
