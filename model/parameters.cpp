#include "model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

std::string_view module_of(std::string_view name) {
  return name.substr(0, name.rfind('.'));
}

/// Whether another parameter may follow this one without a gap: only if it would do so if both were sharded, because
/// the GEMMs, and so the results, must be the same with and without sharding.
bool is_followed(const Param* p) {
  return p && p->spec.shape.numel() % kShardAlign == 0;
}

/// The layers that read the same input as `l`.
std::span<const LinearId> beside(const Layer& layer, const LinearId& l) {
  for (const LinearGroup& group : layer.groups)
    if (std::ranges::find(group.layers, l) != group.layers.end()) return group.layers;
  return {&l, 1};
}

/// The group whose results are joined with those of a layer, or the layer alone.
std::span<const LinearId> joined_with(const Layer& layer, const LinearId& l) {
  for (const LinearGroup& group : layer.groups)
    if (group.results == ResultLayout::joined && std::ranges::find(group.layers, l) != group.layers.end())
      return group.layers;
  return {&l, 1};
}

}  // namespace

Parameters::Parameters(Device device, const TransformerOptions& options, const std::vector<Layer>& layers)
    : options_(options), weights_("weights", device, Placement::device, options.sharding), adapter_(device, options) {
  const ModelConfig& c = options_.config;
  const Shape table{c.vocab_size, c.hidden_size};
  embedding_.module = kEmbeddingName;
  embedding_.weight = declare_base(weight_spec(kEmbeddingWeight, table));
  embedding_.weight->spec.role = Role::embedding;
  if (adapter_.adapts(kEmbeddingName)) adapter_.declare_embedding(embedding_, table);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (ParamStore* store : {&weights_, &adapter_.store()}) store->begin_unit(unit_of(static_cast<std::int64_t>(l)));
    declare_layer(static_cast<std::int64_t>(l), layers[l]);
  }
  for (ParamStore* store : {&weights_, &adapter_.store()}) store->begin_unit(kOuterUnit);
  final_norm_ = declare_vector(kFinalNormWeight, {c.hidden_size}, c.norm_init());
  head_.module = kHeadName;
  head_.weight = declare_head();
  if (!has_tied_head()) head_.weight->spec.role = Role::head;
  head_.stream = streams_;
  if (options_.lora && options_.lora->init.changes_base() && has_tied_head() && adapter_.adapts(kHeadName))
    fail(ErrorKind::usage,
         {.cause = "init_lora_weights would change the embedding along with the tied head, which is a target",
          .remedy = "leave lm_head out of lora_target_modules, or set init_lora_weights to true"});
  LinearParams* const head[] = {&head_};
  adapter_.declare_factors(head);
  adapter_.declare_magnitude(head_);
  if (options_.lora) require_matches();
  for (ParamStore* store : {&weights_, &adapter_.store()}) store->divide();
}

// Declares a weight of the base model, or the one that is trained in its place.
Param* Parameters::declare_base(ParamSpec spec) {
  if (!adapter_.trains_whole(module_of(spec.name))) return &weights_.declare(std::move(spec));
  const std::string base = spec.drawn_as.empty() ? spec.name : spec.drawn_as;
  spec.name = std::string(kPeftPrefix) + spec.name;
  spec.drawn_as = base;
  spec.dtype = options_.full_dtype();
  spec.update = options_.adapter;
  spec.grad_dtype.reset();
  return saved_.emplace_back(&adapter_.store().declare(std::move(spec)), base).param;
}

ParamSpec Parameters::weight_spec(const std::string& name, Shape shape) const {
  const bool wide = options_.activation_dtype == DType::f64;
  const DType trained = wide ? DType::f64 : options_.trained_dtype;
  const DType frozen = wide ? DType::f64 : options_.weight_dtype;
  return {.name = name,
          .shape = shape,
          .dtype = options_.base == Update::trained ? trained : frozen,
          .init = {Init::Kind::normal, options_.config.initializer_range},
          .update = options_.base,
          .decay = Decay::yes,
          .grad_dtype = options_.full_dtype()};
}

// Norm weights and biases are small, so they are kept in full precision.
ParamSpec Parameters::vector_spec(const std::string& name, Shape shape, Init init, Decay decay) const {
  return {.name = name,
          .shape = shape,
          .dtype = options_.full_dtype(),
          .init = init,
          .update = options_.base,
          .decay = decay,
          .role = Role::vector};
}

Param* Parameters::declare_vector(const std::string& name, Shape shape, Init init, Decay decay) {
  return declare_base(vector_spec(name, shape, init, decay));
}

// A tied head shares the embedding's weight, unless only one of them is trained or each is trained separately.
Param* Parameters::declare_head() {
  const ModelConfig& c = options_.config;
  ParamSpec spec = weight_spec(c.tie_word_embeddings ? kEmbeddingWeight : kHeadWeight, {c.vocab_size, c.hidden_size});
  if (!c.tie_word_embeddings) return declare_base(std::move(spec));
  const bool with_embedding = adapter_.trains_whole(kEmbeddingName), whole = adapter_.trains_whole(kHeadName);
  if (whole ? with_embedding && options_.lora->ensure_weight_tying : !with_embedding) return embedding_.weight;
  if (!whole) return &weights_.declare(std::move(spec));
  spec.drawn_as = spec.name;
  spec.name = kHeadWeight;
  return declare_base(std::move(spec));
}

// Throws unless everything that the config names exists.
void Parameters::require_matches() const {
  for (const std::string& end : options_.lora->modules_to_save)
    if (std::none_of(saved_.begin(), saved_.end(), [&](const SavedWeight& s) {
          return module_of(s.param->spec.name).ends_with(end) || (has_tied_head() && kHeadName.ends_with(end));
        }))
      fail(ErrorKind::usage, {.cause = fmt::format("modules_to_save: \"{}\" is not a layer of the model", end),
                              .remedy = "use names such as embed_tokens, lm_head, norm"});
  if (adapter_.store().all().size() == saved_.size())
    fail(ErrorKind::usage, {.cause = "lora_target_modules matches no layer of the model",
                            .remedy = "use all-linear, or names such as q_proj, k_proj, v_proj, o_proj, gate_proj, "
                                      "up_proj, down_proj, embed_tokens, lm_head"});
  if (options_.config.tie_word_embeddings && options_.lora->ensure_weight_tying && (embedding_.a || head_.a))
    fail(ErrorKind::usage,
         {.cause = "ensure_weight_tying only affects lora_modules_to_save: adapters on a tied embedding or "
                   "head are not tied",
          .remedy = "remove it"});
}

LinearParams Parameters::declare_linear(const std::string& module, const LinearSpec& spec, const LinearParams* before) {
  LinearParams p{.module = module, .kind = spec.kind};
  if (!spec.parameter.empty() && adapter_.trains_whole(module))
    fail(ErrorKind::usage,
         {.cause = fmt::format("lora_modules_to_save: the router {} cannot be trained as a whole", module),
          .remedy = "name it in lora_target_modules to train an adapter on it"});
  const Shape shape{spec.out, spec.in};
  const bool quantizes = options_.quantization && spec.kind == LinearKind::plain &&
                         !options_.quantization->bnb.skips(module) && !adapter_.trains_whole(module);
  if (quantizes) {
    const QuantizedLinear* previous = before ? before->quantized : nullptr;
    QuantizedLinear& q = quantized_.emplace_back(weights_, module + ".weight", shape, *options_.quantization, previous);
    q.set_continues(previous != nullptr);
    p.quantized = &q;
    return p;
  }
  ParamSpec weight = weight_spec(module + ".weight", shape);
  weight.continues = before && is_followed(before->weight) && !trains_either_whole(*before, p);
  p.weight = declare_base(std::move(weight));
  return p;
}

bool Parameters::trains_either_whole(const LinearParams& a, const LinearParams& b) const {
  return adapter_.trains_whole(a.module) || adapter_.trains_whole(b.module);
}

void Parameters::declare_bias(LinearParams& p, const LinearSpec& spec, const LinearParams* before) {
  if (spec.bias == Bias::no) return;
  ParamSpec bias = vector_spec(p.module + ".bias", {spec.out}, spec.bias_init, Decay::no);
  bias.continues = before && is_followed(before->bias) && !trains_either_whole(*before, p);
  p.bias = declare_base(std::move(bias));
}

ExpertsParams Parameters::declare_experts(const std::string& prefix, const ExpertsSpec& spec) {
  const Shape shape{spec.count, spec.out, spec.in};
  const std::string joined = fmt::format("{}{}.{}", prefix, spec.module, spec.part);
  if (spec.files == ExpertFiles::joined) {
    ParamSpec weight = weight_spec(joined, shape);
    weight.file_order = FileOrder{.shape = shape, .axes = {0, 2, 1}, .in_files = {spec.count, spec.in, spec.out}};
    ExpertsParams p{.weight = &weights_.declare(std::move(weight))};
    if (spec.bias == Bias::yes)
      p.bias = declare_vector(joined + "_bias", {spec.count, spec.out}, {Init::Kind::zeros, 0});
    return p;
  }
  ParamSpec weight = weight_spec(joined + ".weight", shape);
  for (std::int64_t e = 0; e < spec.count; ++e) weight.slices_in_files.push_back(prefix + spec.tensor_of(e));
  return {.weight = &weights_.declare(std::move(weight))};
}

// The weights of layers with joined results are contiguous, and so are their biases, which follow the last weight.
void Parameters::declare_linear(const std::string& prefix, const Layer& layer, LinearId l, LayerParams& p) {
  const std::span<const LinearId> group = joined_with(layer, l);
  const LinearSpec& spec = layer.spec(l);
  LinearParams& linear = p[l];
  linear =
      declare_linear(prefix + spec.module, spec, l == group.front() ? nullptr : &p[*(std::ranges::find(group, l) - 1)]);
  linear.stream = streams_ + static_cast<std::uint64_t>(l);
  if (const std::span<const LinearId> all = beside(layer, l); l == all.back()) declare_scales(p, all);
  if (l != group.back()) return;
  for (std::size_t i = 0; i < group.size(); ++i)
    declare_bias(p[group[i]], layer.spec(group[i]), i == 0 ? nullptr : &p[group[i - 1]]);
  if (!spec.parameter.empty()) linear.module = prefix + spec.parameter;
}

// Layers with the same input share a scale whether or not they are one GEMM, so that every device has the same numbers.
void Parameters::declare_scales(const LayerParams& p, std::span<const LinearId> group) {
  auto q = quantized_.end() - std::ranges::count_if(group, [&](LinearId l) { return p[l].quantized != nullptr; });
  const QuantizedLinear* first = nullptr;
  for (const LinearId l : group) {
    if (!p[l].quantized) {
      first = nullptr;
      continue;
    }
    check(&*q == p[l].quantized, "layers with the same input are not declared one after another");
    q->declare_scales(weights_, first);
    if (!q->shares_scale()) first = &*q;
    ++q;
  }
}

void Parameters::declare_layer(std::int64_t index, const Layer& layer) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  LayerParams p;
  p.vectors.resize(layer.vectors.size());
  p.linears.resize(layer.linears.size());
  for (const ParamId& id : layer.order) {
    if (const auto* v = std::get_if<VectorId>(&id)) {
      const VectorSpec& spec = layer.spec(*v);
      p.vectors[static_cast<std::size_t>(*v)] = declare_vector(prefix + spec.name, {spec.size}, spec.init, spec.decay);
    } else if (const auto* e = std::get_if<ExpertsId>(&id)) {
      p.experts.push_back(declare_experts(prefix, layer.spec(*e)));
    } else {
      declare_linear(prefix, layer, std::get<LinearId>(id), p);
    }
  }
  for (const LinearGroup& group : layer.groups) {
    std::vector<LinearParams*> linears;
    for (const LinearId l : group.layers) linears.push_back(&p[l]);
    adapter_.declare_factors(linears);
  }
  for (LinearParams& linear : p.linears) adapter_.declare_magnitude(linear);
  declare_expert_factors(prefix, layer, p);
  streams_ += layer.linears.size();
  layers_.push_back(std::move(p));
}

void Parameters::declare_expert_factors(const std::string& prefix, const Layer& layer, LayerParams& p) {
  std::vector<const ExpertsGroup*> adapted;
  for (const ExpertsGroup& group : layer.expert_groups)
    if (adapter_.adapts_parameter(prefix + group.parameter)) adapted.push_back(&group);
  for (const ExpertsGroup* group : adapted) {
    std::vector<ExpertsParams*> layers;
    for (const ExpertsId e : group->layers) layers.push_back(&p.experts[static_cast<std::size_t>(e)]);
    adapter_.declare_factors(
        {.parameter = prefix + group->parameter, .layers = layers, .outer = group == adapted.back()});
  }
}

std::vector<Param*> Parameters::trained() {
  std::vector<Param*> out;
  for (ParamStore* store : {&weights_, &adapter_.store()})
    for (Param& p : store->all())
      if (p.trained()) out.push_back(&p);
  return out;
}

bool Parameters::is_quantized_part(const Param& p) const {
  return std::any_of(quantized_.begin(), quantized_.end(), [&](const QuantizedLinear& q) { return q.owns(p); });
}

bool Parameters::is_looked_up(const Param& p) const {
  return &p == embedding_.a || (&p == embedding_.weight && !has_tied_head());
}

bool Parameters::is_operand(const Param& p) const {
  const bool multiplied = p.spec.name.ends_with("bias") ? p.spec.shape.rank == 1 : p.spec.shape.rank == 2;
  return multiplied && is_float(p.spec.dtype) && !is_looked_up(p) && !is_quantized_part(p);
}

std::int64_t Parameters::widest_decomposed() const {
  std::int64_t widest = 0;
  for (const LayerParams& layer : layers_)
    for (const LinearParams& p : layer.linears)
      if (p.magnitude) widest = std::max(widest, p.magnitude->spec.shape[0]);
  return widest;
}

std::int64_t Parameters::linear_elements() const {
  std::int64_t n = 0;
  for (const LayerParams& layer : layers_)
    for (const LinearParams& p : layer.linears) n += p.shape().numel();
  return n;
}

std::int64_t Parameters::expert_elements() const {
  std::int64_t n = 0;
  for (const LayerParams& layer : layers_)
    for (const ExpertsParams& p : layer.experts) n += p.weight->spec.shape.numel();
  return n;
}

std::int64_t Parameters::elements() const {
  std::int64_t n = 0;
  for (const QuantizedLinear& q : quantized_) n += q.shape().numel() - q.part_elements();
  for (const SavedWeight& s : saved_) {
    const bool copied = &s != &saved_.front() && s.base == saved_.front().base;  // an untied copy of a tied head
    if (!weights_.find(s.base) && !copied) n += s.param->spec.shape.numel();
  }
  return n + weights_.elements();
}

std::size_t Parameters::quantization_bytes() const {
  std::size_t bytes = 0;
  for (const QuantizedLinear& q : quantized_) bytes += q.state_bytes();
  return bytes;
}

std::int64_t Parameters::largest_quantized() const {
  std::int64_t max = 0;
  for (const QuantizedLinear& q : quantized_) max = std::max(max, q.shape().numel());
  return max;
}

void Parameters::allocate(const Parameters* base) {
  check(!adapter_.store().values().committed(), "a model gets its memory once");
  if (base)
    weights_.share(base->weights_);
  else
    weights_.allocate();
  adapter_.allocate();
}

void Parameters::initialize(Ctx& ctx, std::uint64_t seed) {
  weights_.initialize(ctx, seed);
  initialize_quantized(ctx, seed);
  const std::int64_t row = options_.config.padding_row();
  if (row < 0) return;
  const std::int64_t width = options_.config.hidden_size;
  write_values(ctx, *embedding_.weight, {.begin = row * width, .count = width},
               [](std::int64_t, Tensor part) { std::memset(part.data, 0, part.bytes()); });
}

// Draws each matrix like a dense weight of its name and quantizes it, in host memory outside the memory plan: one
// matrix at a time, as when they are read from files.
void Parameters::initialize_quantized(Ctx& ctx, std::uint64_t seed) {
  HostContext host(ctx);
  quantize_all(ctx, quantized_, [&](const QuantizedLinear& q, const GiveDense& give) {
    ParamStore one("a weight", {}, Placement::pinned);
    const Param& dense = one.declare({.name = q.name(),
                                      .shape = q.shape(),
                                      .dtype = DType::f32,
                                      .init = {Init::Kind::normal, options_.config.initializer_range}});
    one.allocate();
    one.initialize(host.get(), seed);
    give(dense.value, q.name());
  });
}

}  // namespace qtrain
