#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/transformer.h"

namespace qtrain {
namespace {

enum Which : std::uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown };
/// Layers that read the same input.
struct Group {
  int first, count;

  int end() const { return first + count; }
};
constexpr Group kGroups[] = {{kQ, 3}, {kO, 1}, {kGate, 2}, {kDown, 1}};

Sink sink_of(const Param* p) {
  return p ? p->grad_sink() : discard();
}
ConstTensor value_of(const Param* p) {
  return p ? ConstTensor(p->value) : ConstTensor{};
}
std::string module_name(std::int64_t layer, int which) {
  return fmt::format("model.layers.{}.{}", layer, kLinearNames[which]);
}
NormWeight norm_of(const Param* p) {
  return {.weight = value_of(p), .grad = sink_of(p)};
}

}  // namespace

Param* Transformer::declare_weight(const std::string& name, Shape shape, Init init) {
  const bool wide = options_.activation_dtype == DType::f64;
  const DType trained = wide ? DType::f64 : options_.trained_dtype;
  const DType frozen = wide ? DType::f64 : options_.weight_dtype;
  return &weights_.declare({.name = name,
                            .shape = shape,
                            .dtype = options_.base == Update::trained ? trained : frozen,
                            .init = init,
                            .update = options_.base,
                            .decay = Decay::yes,
                            .grad_dtype = wide ? DType::f64 : DType::f32});
}

// Norm weights and biases: small, so kept in the precision of the sums; never decayed.
Param* Transformer::declare_vector(const std::string& name, std::int64_t size, Init init) {
  return &weights_.declare({.name = name,
                            .shape = {size},
                            .dtype = options_.activation_dtype == DType::f64 ? DType::f64 : DType::f32,
                            .init = init,
                            .update = options_.base,
                            .decay = Decay::no});
}

// Of layers that read the same input, first all A and then all B, so that each kind is one matrix in memory.
void Transformer::declare_adapters(std::int64_t layer, BlockParams& block) {
  const LoraConfig& lora = *options_.lora;
  const DType dtype = options_.activation_dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto declare = [&](const std::string& module, const char* part, Shape shape, Init init) {
    return &adapter_.declare({.name = "base_model.model." + module + part,
                              .shape = shape,
                              .dtype = dtype,
                              .init = init,
                              .update = options_.adapter});
  };
  const auto declare_part = [&](const char* part, int i) {
    const std::string module = module_name(layer, i);
    ProjectionParams& p = block.linear[i];
    if (!is_target(lora, module)) return;
    const std::int64_t r = lora.rank_of(module), in = p.shape()[1];
    p.scale = lora.scale_of(module);
    // Kaiming uniform with a = sqrt(5), as PEFT: bound 1 / sqrt(in).
    if (!p.a)
      p.a = declare(module, part, {r, in}, {Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(in))});
    else
      p.b = declare(module, part, {p.shape()[0], r}, {});
  };
  for (const Group& group : kGroups)
    for (const char* part : {".lora_A.weight", ".lora_B.weight"})
      for (int i = group.first; i < group.end(); ++i) declare_part(part, i);
}

LoraRanks Transformer::lora_ranks() const {
  std::int64_t most[std::size(kGroups)] = {};
  for (const BlockParams& block : blocks_)
    for (std::size_t g = 0; g < std::size(kGroups); ++g) {
      std::int64_t ranks = 0;
      for (int i = kGroups[g].first; i < kGroups[g].end(); ++i) ranks += block.linear[i].rank();
      most[g] = std::max(most[g], ranks);
    }
  return {.qkv = most[0], .o = most[1], .gate_up = most[2], .down = most[3]};
}

// Elements of the A of adapters that read one input, which are one operand.
std::int64_t Transformer::largest_stack() const {
  std::int64_t most = 0;
  for (const BlockParams& block : blocks_)
    for (const Group& group : kGroups) {
      std::int64_t elements = 0;
      for (int i = group.first; i < group.end(); ++i)
        if (const Param* a = block.linear[i].a) elements += a->spec.shape.numel();
      most = std::max(most, elements);
    }
  return most;
}

Transformer::ProjectionParams Transformer::declare_linear(std::int64_t layer, int which, Shape shape, bool bias) {
  const std::string module = module_name(layer, which);
  ProjectionParams p;
  if (options_.quantisation && !options_.quantisation->bnb.skips(module))
    p.quantised = &quantised_.emplace_back(weights_, module + ".weight", shape, *options_.quantisation);
  else
    p.weight = declare_weight(module + ".weight", shape, {Init::Kind::normal, options_.config.initializer_range});
  if (bias) p.bias = declare_vector(module + ".bias", shape[0], {Init::Kind::zeros, 0});
  p.stream = static_cast<std::uint64_t>(layer * 7 + which);
  return p;
}

void Transformer::declare_block(std::int64_t layer) {
  const ModelConfig& c = options_.config;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim, hidden = c.hidden_size,
                     inner = c.intermediate_size;
  const Init ones{Init::Kind::ones, 0};
  BlockParams b;
  b.norm1 = declare_vector(prefix + "input_layernorm.weight", hidden, ones);
  b.linear[kQ] = declare_linear(layer, kQ, {q, hidden}, c.qkv_bias);
  b.linear[kK] = declare_linear(layer, kK, {kv, hidden}, c.qkv_bias);
  b.linear[kV] = declare_linear(layer, kV, {kv, hidden}, c.qkv_bias);
  b.linear[kO] = declare_linear(layer, kO, {hidden, q}, c.o_bias);
  if (c.qk_norm) {
    b.q_norm = declare_vector(prefix + "self_attn.q_norm.weight", c.head_dim, ones);
    b.k_norm = declare_vector(prefix + "self_attn.k_norm.weight", c.head_dim, ones);
  }
  b.norm2 = declare_vector(prefix + "post_attention_layernorm.weight", hidden, ones);
  b.linear[kGate] = declare_linear(layer, kGate, {inner, hidden}, c.mlp_bias);
  b.linear[kUp] = declare_linear(layer, kUp, {inner, hidden}, c.mlp_bias);
  b.linear[kDown] = declare_linear(layer, kDown, {hidden, inner}, c.mlp_bias);
  if (options_.lora) declare_adapters(layer, b);
  blocks_.push_back(b);
}

std::vector<Param*> Transformer::trained() {
  std::vector<Param*> out;
  for (ParamStore* store : {&weights_, &adapter_})
    for (Param& p : store->all())
      if (p.trained()) out.push_back(&p);
  return out;
}

Projection Transformer::acquire_linear(const ProjectionParams& p) const {
  const Param* dense = p.copy ? p.copy : p.weight;
  Projection out{
      .weight = value_of(dense), .bias = value_of(p.bias), .dweight = sink_of(p.weight), .dbias = sink_of(p.bias)};
  if (!dense) out.quantised = p.quantised->weight();
  if (p.a)
    out.lora = {.a = p.a->value,
                .b = p.b->value,
                .da = sink_of(p.a),
                .db = sink_of(p.b),
                .scale = p.scale,
                .dropout = options_.lora->dropout,
                .stream = p.stream};
  return out;
}

BlockWeights Transformer::acquire(std::int64_t layer) const {
  const BlockParams& b = blocks_[static_cast<std::size_t>(layer)];
  return {.norm1 = norm_of(b.norm1),
          .norm2 = norm_of(b.norm2),
          .q_norm = norm_of(b.q_norm),
          .k_norm = norm_of(b.k_norm),
          .q = acquire_linear(b.linear[kQ]),
          .k = acquire_linear(b.linear[kK]),
          .v = acquire_linear(b.linear[kV]),
          .o = acquire_linear(b.linear[kO]),
          .gate = acquire_linear(b.linear[kGate]),
          .up = acquire_linear(b.linear[kUp]),
          .down = acquire_linear(b.linear[kDown])};
}

// One block in which a layer trains where it does in any block: adapters may target single layers, and all blocks share
// one plan of what is kept.
BlockWeights Transformer::widest_training() const {
  BlockWeights all = acquire(0);
  for (std::int64_t l = 1; l < options_.config.layers; ++l) {
    const BlockWeights w = acquire(l);
    using P = Projection BlockWeights::*;
    for (const P p : {P(&BlockWeights::q), P(&BlockWeights::k), P(&BlockWeights::v), P(&BlockWeights::o),
                      P(&BlockWeights::gate), P(&BlockWeights::up), P(&BlockWeights::down)})
      if ((w.*p).trains()) all.*p = w.*p;
  }
  return all;
}

bool Transformer::is_quantised_part(const Param& p) const {
  return std::any_of(quantised_.begin(), quantised_.end(), [&](const QuantisedLinear& q) { return q.owns(p); });
}

std::int64_t Transformer::linear_parameters() const {
  std::int64_t n = 0;
  for (const BlockParams& block : blocks_)
    for (const ProjectionParams& p : block.linear) n += p.shape().numel();
  return n;
}

std::int64_t Transformer::parameters() const {
  std::int64_t n = 0;
  for (const QuantisedLinear& q : quantised_) n += q.shape().numel() - q.part_elements();
  return n + weights_.elements();
}

void Transformer::keep_dense_copies() {
  check(planned_.empty(), "dense copies are chosen before activations are planned");
  for (BlockParams& block : blocks_)
    for (ProjectionParams& p : block.linear)
      if (p.quantised && !p.copy)
        p.copy = &copies_.declare(
            {.name = p.quantised->name(), .shape = p.quantised->shape(), .dtype = options_.dense_dtype, .init = {}});
}

std::size_t Transformer::dense_copy_bytes() const {
  Arena measured("dense copies", device());
  for (const QuantisedLinear& q : quantised_) measured.take(options_.dense_dtype, q.shape());
  return measured.planned();
}

std::size_t Transformer::largest_dense_bytes() const {
  return static_cast<std::size_t>(largest_quantised()) * size_of(options_.dense_dtype);
}

std::int64_t Transformer::largest_quantised() const {
  std::int64_t most = 0;
  for (const QuantisedLinear& q : quantised_) most = std::max(most, q.shape().numel());
  return most;
}

std::size_t Transformer::quantisation_bytes() const {
  std::size_t bytes = 0;
  for (const QuantisedLinear& q : quantised_) bytes += q.state_bytes();
  return bytes;
}

void Transformer::fill_dense_copies(Ctx& ctx) {
  if (!keeps_dense_copies()) return;
  for (const QuantisedLinear& q : quantised_) q.expand(ctx, copies_.find(q.name())->value);
}

void Transformer::initialise_weights(Ctx& ctx, std::uint64_t seed) {
  weights_.initialise(ctx, seed);
  initialise_quantised(ctx, seed);
  const std::int64_t row = config().padding_row();
  if (row < 0) return;
  const auto row_bytes = static_cast<std::int64_t>(embedding_->value.bytes()) / config().vocab_size;
  ctx.stream().fill(static_cast<std::byte*>(embedding_->value.data) + row * row_bytes, 0,
                    static_cast<std::size_t>(row_bytes));
}

// Each as a dense weight of its name would be, on the host.
void Transformer::initialise_quantised(Ctx& ctx, std::uint64_t seed) {
  if (quantised_.empty()) return;
  HostContext host(ctx);
  for (const QuantisedLinear& q : quantised_) {
    ParamStore one("a weight");
    const Param& dense = one.declare({.name = q.name(),
                                      .shape = q.shape(),
                                      .dtype = DType::f32,
                                      .init = {Init::Kind::normal, config().initializer_range}});
    one.allocate();
    one.initialise(host.get(), seed);
    q.quantise(ctx, host.get(), dense.value, q.name());
  }
}

}  // namespace qtrain
