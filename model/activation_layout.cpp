#include "model/activation_layout.h"

#include <algorithm>
#include <map>

namespace qtrain {
namespace {

/// Tensors that share memory across layers, by name: each is sized for the largest of its name.
class SharedTensors {
 public:
  struct Wanted {
    DType dtype;
    std::int64_t elements;
  };
  void want(const std::string& name, DType dtype, const Shape& shape) {
    const auto [at, is_new] = wanted_.try_emplace(name, Wanted{dtype, shape.numel()});
    if (is_new) order_.push_back(name);
    at->second.elements = std::max(at->second.elements, shape.numel());
  }
  void take(Arena& arena) {
    for (const std::string& name : order_) {
      const Wanted& w = wanted_.at(name);
      memory_.emplace(name, arena.take(w.dtype, {w.elements}));
    }
  }
  Tensor of(const std::string& name) const { return memory_.at(name); }

 private:
  std::map<std::string, Wanted> wanted_;
  std::map<std::string, Tensor> memory_;
  std::vector<std::string> order_;
};

TensorId id_of(std::size_t t) {
  return static_cast<TensorId>(t);
}

}  // namespace

DType ActivationLayout::dtype(Precision precision) const {
  if (precision == Precision::index) return DType::i32;
  return precision == Precision::full ? model_.options().full_dtype() : model_.options().activation_dtype;
}

// The stride of a group's input if the group and its adapters are one GEMM, or 0. In generation they never are: a copy
// of the weights costs more than a few tokens save.
std::int64_t ActivationLayout::joined(std::size_t layer, const LinearGroup& group) const {
  if (pass_ == Pass::decode) return 0;
  return joined_stride(model_, plan_.choice().adapter_gemms, {layer, group, plan_.most_tokens(pass_)});
}

std::int64_t ActivationLayout::stride(std::size_t layer, TensorId t) const {
  for (const LinearGroup& group : model_.layers()[layer].groups)
    if (group.x == t) return joined(layer, group);
  return 0;
}

// The distance of rows of [dy | du], or 0.
std::int64_t ActivationLayout::joined_gradient(std::size_t layer, const LinearGroup& group) const {
  if (pass_ != Pass::train) return 0;
  return joined_gradient_stride(model_, plan_.choice().adapter_gemms, {layer, group, plan_.most_tokens(pass_)});
}

// Whether x is computed again before the gradients that read A x, which is saved.
bool ActivationLayout::computes_again(std::size_t layer, const LinearGroup& group) const {
  if (pass_ != Pass::train) return false;
  const TensorSet& saved = plan_.recompute(static_cast<std::int64_t>(layer)).saved;
  return saved.has(group.lora) && !saved.has(group.x);
}

std::int64_t ActivationLayout::ranks(std::size_t layer, const ExpertsGroup& group) const {
  return model_.params().layers()[layer].experts[static_cast<std::size_t>(group.layers.front())].rank();
}

Shape ActivationLayout::shape(std::size_t layer, TensorId t) const {
  const Layer& table = model_.layers()[layer];
  for (const LinearGroup& group : table.groups)
    if (group.lora == t) {
      const bool after_x = joined(layer, group) != 0 && !computes_again(layer, group);
      return {size_.tokens, after_x ? 0 : ranks_of(model_.params().layers()[layer], group)};
    }
  Shape shape = table.spec(t).shape_for(size_.tokens);
  for (const ExpertsGroup& group : table.expert_groups)
    if (group.lora == t) shape.dims[1] = ranks(layer, group);
  return shape;
}

// With the columns after each row that are not part of the tensor.
Shape ActivationLayout::memory_shape(std::size_t layer, TensorId t) const {
  Shape shape = this->shape(layer, t);
  if (const std::int64_t elements = stride(layer, t); elements != 0) shape.dims[1] = elements;
  return shape;
}

std::int64_t ActivationLayout::max_ranks() const {
  std::int64_t max = 0;
  for (std::size_t l = 0; l < model_.layers().size(); ++l)
    for (const LinearGroup& group : model_.layers()[l].groups)
      max = std::max(max, ranks_of(model_.params().layers()[l], group));
  return max;
}

// The largest number of elements of weights that are expanded, or copied with their adapters, at the same time.
std::int64_t ActivationLayout::dense_elements() const {
  const bool expands = plan_.choice().dense_copies == KeepCopies::no;
  std::int64_t max = expands ? model_.params().largest_quantized() : 0;
  for (std::size_t l = 0; l < model_.layers().size(); ++l)
    for (const LinearGroup& group : model_.layers()[l].groups) {
      const std::int64_t stride = joined(l, group);
      std::int64_t sum = 0, with_adapters = 0;
      if (joined_gradient(l, group) != 0) {
        const LinearParams& p = model_.params().layers()[l][group.layers.front()];
        max = std::max(max, (p.shape()[0] + p.rank()) * p.shape()[1]);
      }
      for (const LinearId id : group.layers) {
        const LinearParams& p = model_.params().layers()[l][id];
        with_adapters += p.shape()[0] * stride;
        if (expands && p.quantized && group.results == ResultLayout::joined) sum += p.shape().numel();
      }
      max = std::max({max, sum, with_adapters});
    }
  return max;
}

std::int64_t ActivationLayout::widest_input() const {
  std::int64_t widest = model_.config().hidden_size;
  for (const Layer& layer : model_.layers())
    for (const LinearSpec& linear : layer.linears) widest = std::max(widest, linear.in);
  return widest;
}

// The number of rows per chunk of the LM head.
std::int64_t ActivationLayout::head_rows() const {
  if (pass_ == Pass::decode) return size_.targets;
  return std::clamp<std::int64_t>(size_.targets, 1, plan_.head_chunk(pass_).rows);
}

std::int64_t ActivationLayout::scratch_elements() const {
  const LinearParams& head = model_.params().head();
  const std::int64_t ranks = std::max(max_ranks(), head.rank());
  const bool train = pass_ == Pass::train;
  if (ranks == 0) return 0;
  const std::int64_t blocks = projection_scratch({.tokens = size_.tokens,
                                                  .in = widest_input(),
                                                  .ranks = ranks,
                                                  .decomposed = train ? model_.params().widest_decomposed() : 0},
                                                 model_.dropout());
  if (!train || !head.magnitude) return blocks;
  return std::max(blocks, projection_scratch({.tokens = head_rows(),
                                              .in = model_.config().hidden_size,
                                              .ranks = head.rank(),
                                              .decomposed = model_.config().vocab_size},
                                             model_.dropout()));
}

Tensor ActivationLayout::stream_tensor(Arena& arena) const {
  return arena.take(model_.options().activation_dtype, {size_.tokens, model_.config().hidden_size});
}

// The input of each block, and the output of the last. In training, the first block of each group has its own buffer
// (or one of two alternating buffers, if inputs are offloaded to the host), and the other blocks share buffers across
// groups; otherwise only two buffers are needed at a time.
std::vector<Tensor> ActivationLayout::residual_stream(Arena& arena) const {
  const bool train = pass_ == Pass::train;
  const std::int64_t layers = model_.config().layers, period = train ? plan_.group() : 2;
  const std::int64_t turn = train && plan_.offloads_inputs() ? 2 * period : layers;
  std::vector<Tensor> stream;
  const auto at = [&](std::int64_t l) { return stream[static_cast<std::size_t>(l)]; };
  for (std::int64_t l = 0; l <= layers; ++l) {
    if (train && l == layers)
      stream.push_back(stream_tensor(arena));
    else if (train && l % period == 0)
      stream.push_back(l < turn ? stream_tensor(arena) : at(l - turn));
    else
      stream.push_back(l < period ? stream_tensor(arena) : at(l % period));
  }
  return stream;
}

void ActivationLayout::add_strides(Activations& a) const {
  for (std::size_t l = 0; l < model_.layers().size(); ++l) {
    std::vector<std::int64_t>& strides = a.strides.emplace_back(model_.layers()[l].tensors.size());
    for (const LinearGroup& group : model_.layers()[l].groups) {
      strides[static_cast<std::size_t>(group.x)] = stride(l, group.x);
      strides[static_cast<std::size_t>(group.lora)] = joined_gradient(l, group);
    }
  }
}

void ActivationLayout::add_layers(Arena& arena, Activations& a) const {
  SharedTensors shared;
  const auto has_own = [&](std::size_t l, TensorId t) {
    return pass_ == Pass::train && plan_.recompute(static_cast<std::int64_t>(l)).saved.has(t);
  };
  const auto each = [&](std::size_t l, const auto& act) {
    const Layer& layer = model_.layers()[l];
    for (std::size_t t = 0; t < layer.tensors.size(); ++t)
      if (id_of(t) != layer.input && id_of(t) != layer.output) act(t, layer.tensors[t]);
  };
  for (std::size_t l = 0; l < model_.layers().size(); ++l)
    each(l, [&](std::size_t t, const TensorSpec& spec) {
      if (!has_own(l, id_of(t))) shared.want(spec.name, dtype(spec.precision), memory_shape(l, id_of(t)));
    });
  shared.take(arena);
  const std::vector<Tensor> stream = residual_stream(arena);
  for (std::size_t l = 0; l < model_.layers().size(); ++l) {
    const Layer& layer = model_.layers()[l];
    std::vector<Tensor> s(layer.tensors.size());
    each(l, [&](std::size_t t, const TensorSpec& spec) {
      const bool own = has_own(l, id_of(t));
      s[t] = own ? arena.take(dtype(spec.precision), memory_shape(l, id_of(t))) : shared.of(spec.name);
      s[t].shape = shape(l, id_of(t));
    });
    s[static_cast<std::size_t>(layer.input)] = stream[l];
    s[static_cast<std::size_t>(layer.output)] = stream[l + 1];
    a.layers.push_back(std::move(s));
  }
  a.final_hidden = stream.back();
}

void ActivationLayout::add_grads(Arena& arena, Activations& a) const {
  a.residual_grad = stream_tensor(arena);
  SharedTensors shared;
  const auto is_apart = [](const Layer& layer, std::size_t t) {
    return layer.tensors[t].gradient == HasGradient::yes && !layer.residual.has(id_of(t));
  };
  for (std::size_t l = 0; l < model_.layers().size(); ++l)
    for (std::size_t t = 0; t < model_.layers()[l].tensors.size(); ++t)
      if (const Layer& layer = model_.layers()[l]; is_apart(layer, t))
        shared.want(layer.tensors[t].name, dtype(layer.tensors[t].precision), shape(l, id_of(t)));
  shared.take(arena);
  for (std::size_t l = 0; l < model_.layers().size(); ++l) {
    const Layer& layer = model_.layers()[l];
    std::vector<Tensor> d(layer.tensors.size());
    for (std::size_t t = 0; t < d.size(); ++t) {
      if (layer.residual.has(id_of(t))) d[t] = a.residual_grad;
      if (!is_apart(layer, t)) continue;
      d[t] = shared.of(layer.tensors[t].name);
      d[t].shape = shape(l, id_of(t));
    }
    a.grads.push_back(std::move(d));
  }
}

void ActivationLayout::add_head(Arena& arena, Activations& a) const {
  const std::int64_t hidden = model_.config().hidden_size, rows = head_rows();
  const DType type = model_.options().activation_dtype, full = model_.options().full_dtype();
  a.head.hidden = arena.take(type, {rows, hidden});
  a.head.normed = arena.take(type, {rows, hidden});
  a.head.inv_rms = arena.take(full, {rows});
  a.head.logits = arena.take(plan_.head_chunk(pass_).logits, {rows, model_.config().vocab_size});
  if (const std::int64_t rank = model_.params().head().rank(); rank > 0) a.head.lora_x = arena.take(type, {rows, rank});
  if (pass_ == Pass::decode) return;
  a.head.loss = arena.take(full, {rows});
  if (pass_ != Pass::train) return;
  a.head.d_hidden = arena.take(type, {rows, hidden});
  a.head.d_normed = arena.take(type, {rows, hidden});
}

void ActivationLayout::add_router(Arena& arena, Activations& a) const {
  const std::optional<ExpertsConfig>& experts = model_.config().experts;
  if (!experts || pass_ == Pass::decode) return;
  a.router.counts = arena.take(DType::f64, {experts->count});
  a.router.sums = arena.take(DType::f64, {experts->count});
  a.router.factor = arena.take(model_.options().full_dtype(), {experts->count});
}

void ActivationLayout::add_gathered(Arena& arena, Activations& a) const {
  const ContextShare& share = model_.options().context;
  if (!share.is_shared() || pass_ == Pass::decode) return;
  std::int64_t keys = 0, queries = 0;  // elements per token
  bool in_parts = false;
  for (const Layer& layer : model_.layers()) {
    const auto& [heads, head_dim] = layer.key_value;
    const std::int64_t some = share.heads_at_a_time(heads);
    keys = std::max(keys, some * head_dim);
    queries = std::max(queries, some * head_dim * model_.config().heads / heads);
    in_parts = in_parts || some < heads;
  }
  const std::size_t before = arena.used();
  const auto take = [&](std::int64_t elements) { return arena.take(model_.options().activation_dtype, {elements}); };
  const std::int64_t own = size_.tokens, all = own * share.ranks;
  KeyBuffers& b = a.gathered;
  for (KeyBuffers::Heads& h : b.heads) {
    if (&h != &b.heads[0] && !in_parts) continue;
    h = {.keys = take(all * keys), .values = take(all * keys), .own_keys = {}, .own_values = {}};
    if (in_parts) h.own_keys = take(own * keys), h.own_values = take(own * keys);
  }
  if (in_parts) b.q = take(own * queries), b.y = take(own * queries);
  if (pass_ == Pass::train) {
    b.d_keys = take(all * keys);
    b.d_values = take(all * keys);
    if (in_parts) b.d_own = take(own * keys), b.dy = take(own * queries), b.dq = take(own * queries);
  }
  b.bytes = arena.used() - before;
}

Activations ActivationLayout::lay_out(ActivationArenas& arenas) const {
  Arena& arena = arenas.device;
  Activations a;
  const ModelConfig& c = model_.config();
  const DType type = model_.options().activation_dtype;
  for (const RopeConfig& rope : c.ropes) {
    const Tensor cos = arena.take(model_.options().full_dtype(), {size_.positions, rope.dims(c.head_dim) / 2});
    a.rotary.push_back({cos, arena.take(model_.options().full_dtype(), cos.shape)});
  }
  add_layers(arena, a);
  add_strides(a);
  if (pass_ == Pass::train && plan_.offloads_inputs())
    for (std::int64_t group = 0; group < plan_.groups(); ++group)
      a.host_inputs.push_back(arenas.pinned.take(type, {size_.tokens, c.hidden_size}));
  if (const std::int64_t elements = scratch_elements(); elements > 0) a.scratch = arena.take(type, {elements});
  if (const Param* embedding = model_.params().embedding().a)
    a.lora_rows = arena.take(type, {size_.tokens, embedding->spec.shape[1]});
  if (const std::int64_t elements = dense_elements(); elements > 0)
    a.dense = arena.take(model_.quantized().empty() ? type : model_.options().dense_dtype, {elements});
  if (pass_ == Pass::train)
    add_grads(arena, a);
  else
    a.grads.resize(a.layers.size());
  add_router(arena, a);
  add_gathered(arena, a);
  const std::size_t before = arena.used();
  add_head(arena, a);
  a.head.bytes = arena.used() - before;
  return a;
}

}  // namespace qtrain
