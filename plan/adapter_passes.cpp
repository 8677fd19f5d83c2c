#include "plan/adapter_passes.h"

#include <algorithm>

#include "kernels/adapter_grads.h"

namespace qtrain {
namespace {

/// What the sums of blocks add to reading dy once (kernels/cuda/adapter_grads.cu).
constexpr double kSums = 0.3;

/// Layers with adapters that share an input.
struct Adapted {
  double in = 0, out = 0, ranks = 0;
  double decomposed = 0;  ///< outputs with a DoRA magnitude
  double y = 2, dx = 2;   ///< how often a GPU reads and writes results and gradients of inputs for adapters
  double dy = 2;          ///< how often it reads or writes gradients of results

  void add(const Shape& shape, std::int64_t rank) {
    in = static_cast<double>(shape[1]);
    out += static_cast<double>(shape[0]);
    ranks += static_cast<double>(rank);
  }
  void add(const LinearParams& l) {
    if (!l.a) return;
    add(l.shape(), l.rank());
    if (l.magnitude) decomposed += static_cast<double>(l.shape()[0]);
  }
};

// Forward and backward traffic of one group of layers.
AdapterPasses passes_of(const Adapted& a, const Transformer& model) {
  const bool apart = model.device().kind == DeviceKind::cuda;
  const bool drops = model.options().lora && model.options().lora->dropout > 0;
  return {
      .forward = (1 + (drops ? 2 : 0)) * a.in + (apart ? a.y : 0) * a.out + 3 * a.ranks + 2 * a.decomposed,
      .backward = (1 + (apart ? a.dx : 0) + (drops ? 4 : 0)) * a.in + a.dy * a.out + 3 * a.ranks + 7 * a.decomposed};
}

// Adapters come before their layers' GEMMs, which add to the result. Of o and down, they add to the residual stream.
Adapted passed_by(const Transformer& model, const LinearGroup& group) {
  const ModelConfig& c = model.config();
  const bool adds = c.joins_projections && c.residual_scale == 1 && group.results == ResultLayout::apart;
  return {.y = adds ? 2.0 : 1.0, .dx = model.dropout() > 0 ? 2.0 : 1.0};
}

// As ops::reads_once, for a GPU with tensor cores.
bool reads_once(const Transformer& model, const LayerParams& layer, const LinearGroup& group) {
  const TransformerOptions& o = model.options();
  if (model.device().kind != DeviceKind::cuda || size_of(o.activation_dtype) != 2 || !o.lora || o.lora->dora)
    return false;
  return std::ranges::all_of(group.layers, [&](LinearId id) {
    const LinearParams& p = layer[id];
    return !p.a || (p.rank() % 8 == 0 && p.rank() <= ops::AdapterGrads::kMaxRank && p.shape()[0] % 8 == 0);
  });
}

/// The launches of ops::adapter_grads for a group.
double launches_of(const LayerParams& layer, const LinearGroup& group, std::int64_t tokens) {
  std::vector<std::int64_t> outputs;
  for (const LinearId id : group.layers)
    if (layer[id].a) outputs.push_back(layer[id].shape()[0]);
  const std::int64_t some = std::max<std::int64_t>(tokens, 1);  // 0: not known
  return static_cast<double>(ops::AdapterGrid::of(some, outputs, Ctx::kScratchBytes).launches(some));
}

}  // namespace

AdapterPasses adapter_passes(const Transformer& model, AdapterGemms gemms, std::int64_t tokens) {
  AdapterPasses sum;
  const auto add = [&](const Adapted& a, double times) {
    const AdapterPasses p = passes_of(a, model);
    sum.forward += times * p.forward;
    sum.backward += times * p.backward;
  };
  const Parameters& params = model.params();
  for (std::size_t l = 0; l < model.layers().size(); ++l) {
    const LayerParams& layer = params.layers()[l];
    for (const LinearGroup& group : model.layers()[l].groups) {
      Adapted adapted = passed_by(model, group);
      if (joined_stride(model, gemms, {l, group, tokens}) != 0) adapted.y = 0;
      if (reads_once(model, layer, group)) adapted.dy = 1 + kSums;
      if (joined_gradient_stride(model, gemms, {l, group, tokens}) != 0) adapted.dx = 0, adapted.dy += 1;
      for (const LinearId id : group.layers) adapted.add(layer[id]);
      add(adapted, 1);
    }
    for (const ExpertsGroup& group : model.layers()[l].expert_groups) {
      Adapted adapted;
      for (const ExpertsId id : group.layers) {
        const ExpertsParams& e = layer.experts[static_cast<std::size_t>(id)];
        const Shape& shape = e.weight->spec.shape;
        if (e.a) adapted.add({shape[1], shape[2]}, e.rank());
      }
      add(adapted, model.config().experts ? static_cast<double>(model.config().experts->per_token) : 1);
    }
  }
  Adapted head{.y = 1, .dx = model.dropout() > 0 ? 2.0 : 1.0};
  head.add(params.head());
  const AdapterPasses both = passes_of(head, model);
  sum.head = both.forward + both.backward;
  return sum;
}

JoinedAdapters joined_adapters(const Transformer& model, AdapterGemms gemms, const LayerInPass& of) {
  JoinedAdapters sum;
  for (const LinearGroup& group : model.layers()[of.layer].groups) {
    const LayerParams& layer = model.params().layers()[of.layer];
    double adapters = 0, weights = 0;
    for (const LinearId id : group.layers) {
      adapters += layer[id].a ? 1 : 0;
      weights += static_cast<double>(layer[id].shape().numel());
    }
    if (adapters > 0 && reads_once(model, layer, group)) {
      sum.launches_once += launches_of(layer, group, of.tokens);
      sum.adapters_once += adapters;
    }
    if (joined_gradient_stride(model, gemms, {of.layer, group, of.tokens}) != 0) {
      sum.gradient_groups += 1;
      sum.gradient_weights += weights;
    }
    if (joined_stride(model, gemms, {of.layer, group, of.tokens}) == 0) continue;
    sum.groups += 1;
    sum.adapters += adapters;
    sum.weights += weights;
  }
  return sum;
}

}  // namespace qtrain
