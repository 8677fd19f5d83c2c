#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "model/transformer.h"

namespace qtrain {
namespace {

constexpr const char *kEmbeddingWeight = "model.embed_tokens.weight", *kHeadWeight = "lm_head.weight";

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
/// With a = sqrt(5), as PEFT: bound 1 / sqrt(in).
Init kaiming_uniform(std::int64_t in) {
  return {Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(in))};
}
std::string_view module_of(std::string_view name) {
  return name.substr(0, name.rfind('.'));
}
NormWeight norm_of(const Param* p) {
  return {.weight = value_of(p), .grad = sink_of(p)};
}

}  // namespace

// Whether modules_to_save names it; head and embedding are named together where they stay one.
bool Transformer::trains_whole(std::string_view module) const {
  if (!options_.lora) return false;
  const LoraConfig& lora = *options_.lora;
  const bool one = options_.config.tie_word_embeddings && lora.ensure_weight_tying;
  if (one && (module == kEmbeddingName || module == kHeadName))
    return is_saved(lora, kEmbeddingName) || is_saved(lora, kHeadName);
  return is_saved(lora, module);
}

// A weight of the base model, or the one that is trained in its place.
Param* Transformer::declare_base(ParamSpec spec) {
  if (!trains_whole(module_of(spec.name))) return &weights_.declare(std::move(spec));
  const std::string base = spec.drawn_as.empty() ? spec.name : spec.drawn_as;
  spec.name = std::string(kPeftPrefix) + spec.name;
  spec.drawn_as = base;
  spec.dtype = options_.activation_dtype == DType::f64 ? DType::f64 : DType::f32;
  spec.update = options_.adapter;
  spec.grad_dtype.reset();
  return saved_.emplace_back(&adapter_.declare(std::move(spec)), base).param;
}

ParamSpec Transformer::weight_spec(const std::string& name, Shape shape, Init init) const {
  const bool wide = options_.activation_dtype == DType::f64;
  const DType trained = wide ? DType::f64 : options_.trained_dtype;
  const DType frozen = wide ? DType::f64 : options_.weight_dtype;
  return {.name = name,
          .shape = shape,
          .dtype = options_.base == Update::trained ? trained : frozen,
          .init = init,
          .update = options_.base,
          .decay = Decay::yes,
          .grad_dtype = wide ? DType::f64 : DType::f32};
}

// Norm weights and biases: small, so kept in the precision of the sums; never decayed.
Param* Transformer::declare_vector(const std::string& name, std::int64_t size, Init init) {
  return declare_base({.name = name,
                       .shape = {size},
                       .dtype = options_.activation_dtype == DType::f64 ? DType::f64 : DType::f32,
                       .init = init,
                       .update = options_.base,
                       .decay = Decay::no});
}

// A tied head is the embedding, unless one of them is trained without the other, or each for itself.
Param* Transformer::declare_head(Init init) {
  const ModelConfig& c = options_.config;
  ParamSpec spec =
      weight_spec(c.tie_word_embeddings ? kEmbeddingWeight : kHeadWeight, {c.vocab_size, c.hidden_size}, init);
  if (!c.tie_word_embeddings) return declare_base(std::move(spec));
  const bool with_embedding = trains_whole(kEmbeddingName), whole = trains_whole(kHeadName);
  if (whole ? with_embedding && options_.lora->ensure_weight_tying : !with_embedding) return embedding_.weight;
  if (!whole) return &weights_.declare(std::move(spec));
  spec.drawn_as = spec.name;
  spec.name = kHeadWeight;
  return declare_base(std::move(spec));
}

bool Transformer::adapts(std::string_view module) const {
  return options_.lora && is_target(*options_.lora, module) && !trains_whole(module);
}

// What the config names has to be there.
void Transformer::require_matches() const {
  for (const std::string& end : options_.lora->modules_to_save)
    if (std::none_of(saved_.begin(), saved_.end(), [&](const SavedWeight& s) {
          return module_of(s.param->spec.name).ends_with(end) || (has_tied_head() && kHeadName.ends_with(end));
        }))
      fail(ErrorKind::usage, {.cause = fmt::format("modules_to_save: \"{}\" is no layer of the model", end),
                              .remedy = "name layers such as embed_tokens, lm_head, norm"});
  if (adapter_.all().size() == saved_.size())
    fail(ErrorKind::usage, {.cause = "lora_target_modules matches no layer of the model",
                            .remedy = "use all-linear, or names such as q_proj, k_proj, v_proj, o_proj, gate_proj, "
                                      "up_proj, down_proj, embed_tokens, lm_head"});
  if (options_.config.tie_word_embeddings && options_.lora->ensure_weight_tying && (embedding_.a || head_.a))
    fail(ErrorKind::usage,
         {.cause = "ensure_weight_tying is about lora_modules_to_save: adapters on a tied embedding or "
                   "head are not tied",
          .remedy = "leave it out"});
}

Param* Transformer::declare_factor(const std::string& name, Shape shape, Init init) {
  return &adapter_.declare({.name = std::string(kPeftPrefix) + name,
                            .shape = shape,
                            .dtype = options_.activation_dtype == DType::f64 ? DType::f64 : DType::f32,
                            .init = init,
                            .update = options_.adapter});
}

void Transformer::declare_magnitude(const std::string& module, ProjectionParams& p) {
  if (!options_.lora->dora) return;
  const Shape out{p.b->spec.shape[0]};
  p.magnitude = declare_factor(module + ".lora_magnitude_vector", out, {Init::Kind::ones, 0});
  p.norm = &norms_.declare({.name = module + ".weight", .shape = out, .dtype = p.b->spec.dtype, .init = {}});
}

// Of layers that read the same input, first all A and then all B, so that each kind is one matrix in memory.
void Transformer::declare_adapters(std::int64_t layer, BlockParams& block) {
  const auto declare_part = [&](const char* part, int i) {
    const std::string module = module_name(layer, i);
    ProjectionParams& p = block.linear[i];
    if (!adapts(module)) return;
    const std::int64_t r = options_.lora->rank_of(module), in = p.shape()[1];
    p.scale = options_.lora->scale_of(module);
    if (!p.a)
      p.a = declare_factor(module + part, {r, in}, kaiming_uniform(in));
    else
      p.b = declare_factor(module + part, {p.shape()[0], r}, {});
  };
  for (const Group& group : kGroups)
    for (const char* part : {".lora_A.weight", ".lora_B.weight"})
      for (int i = group.first; i < group.end(); ++i) declare_part(part, i);
  for (int i = 0; i < static_cast<int>(std::size(kLinearNames)); ++i)
    if (block.linear[i].b) declare_magnitude(module_name(layer, i), block.linear[i]);
}

void Transformer::declare_head_adapter(Shape shape) {
  const std::string module(kHeadName);
  const std::int64_t r = options_.lora->rank_of(module);
  head_.scale = options_.lora->scale_of(module);
  head_.a = declare_factor(module + ".lora_A.weight", {r, shape[1]}, kaiming_uniform(shape[1]));
  head_.b = declare_factor(module + ".lora_B.weight", {shape[0], r}, {});
  declare_magnitude(module, head_);
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

// Elements of the A of adapters that read one input, which are one operand, where no copy of it is kept.
std::int64_t Transformer::largest_stack() const {
  std::int64_t most = 0;
  for (const BlockParams& block : blocks_)
    for (const Group& group : kGroups) {
      std::int64_t elements = 0;
      for (int i = group.first; i < group.end(); ++i)
        if (const Param* a = block.linear[i].a; a && !operands_.has(*a)) elements += a->spec.shape.numel();
      most = std::max(most, elements);
    }
  return most;
}

// As PEFT begins: A is zero and B normal.
void Transformer::declare_embedding_adapter(Shape table) {
  if (options_.lora->dora)
    fail(ErrorKind::usage, {.cause = "use_dora is for linear layers, the adapter is on embed_tokens too",
                            .remedy = "leave embed_tokens out of lora_target_modules, or train it whole "
                                      "(lora_modules_to_save)"});
  const std::string module(kEmbeddingName);
  const std::int64_t r = options_.lora->rank_of(module);
  embedding_.scale = options_.lora->scale_of(module);
  embedding_.a = declare_factor(module + ".lora_embedding_A", {table[0], r}, {});
  embedding_.b = declare_factor(module + ".lora_embedding_B", {table[1], r}, {Init::Kind::normal, 1});
  embedding_.a->spec.transposed_in_files = true;
  for (Param* p : {embedding_.a, embedding_.b}) p->spec.role = Role::embedding;
}

Transformer::ProjectionParams Transformer::declare_linear(std::int64_t layer, int which, Shape shape, bool bias) {
  const std::string module = module_name(layer, which);
  ProjectionParams p;
  if (options_.quantization && !options_.quantization->bnb.skips(module) && !trains_whole(module))
    p.quantized = &quantized_.emplace_back(weights_, module + ".weight", shape, *options_.quantization);
  else
    p.weight =
        declare_base(weight_spec(module + ".weight", shape, {Init::Kind::normal, options_.config.initializer_range}));
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

bool Transformer::is_quantized_part(const Param& p) const {
  return std::any_of(quantized_.begin(), quantized_.end(), [&](const QuantizedLinear& q) { return q.owns(p); });
}

std::int64_t Transformer::widest_decomposed() const {
  std::int64_t widest = 0;
  for (const BlockParams& block : blocks_)
    for (const ProjectionParams& p : block.linear)
      if (p.magnitude) widest = std::max(widest, p.magnitude->spec.shape[0]);
  return widest;
}

std::int64_t Transformer::linear_parameters() const {
  std::int64_t n = 0;
  for (const BlockParams& block : blocks_)
    for (const ProjectionParams& p : block.linear) n += p.shape().numel();
  return n;
}

std::int64_t Transformer::parameters() const {
  std::int64_t n = 0;
  for (const QuantizedLinear& q : quantized_) n += q.shape().numel() - q.part_elements();
  for (const SavedWeight& s : saved_) {
    const bool copied = &s != &saved_.front() && s.base == saved_.front().base;  // a tied head by itself
    if (!weights_.find(s.base) && !copied) n += s.param->spec.shape.numel();
  }
  return n + weights_.elements();
}

std::size_t Transformer::quantization_bytes() const {
  std::size_t bytes = 0;
  for (const QuantizedLinear& q : quantized_) bytes += q.state_bytes();
  return bytes;
}

void Transformer::initialize_weights(Ctx& ctx, std::uint64_t seed) {
  weights_.initialize(ctx, seed);
  initialize_quantized(ctx, seed);
  const std::int64_t row = config().padding_row();
  if (row < 0) return;
  const auto row_bytes = static_cast<std::int64_t>(embedding_.weight->value.bytes()) / config().vocab_size;
  ctx.stream().fill(static_cast<std::byte*>(embedding_.weight->value.data) + row * row_bytes, 0,
                    static_cast<std::size_t>(row_bytes));
}

// Each as a dense weight of its name would be, on the host.
void Transformer::initialize_quantized(Ctx& ctx, std::uint64_t seed) {
  if (quantized_.empty()) return;
  HostContext host(ctx);
  for (const QuantizedLinear& q : quantized_) {
    ParamStore one("a weight");
    const Param& dense = one.declare({.name = q.name(),
                                      .shape = q.shape(),
                                      .dtype = DType::f32,
                                      .init = {Init::Kind::normal, config().initializer_range}});
    one.allocate();
    one.initialize(host.get(), seed);
    q.quantize(ctx, host.get(), dense.value, q.name());
  }
}

}  // namespace qtrain
