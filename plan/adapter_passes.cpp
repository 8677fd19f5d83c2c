#include "plan/adapter_passes.h"

namespace qtrain {
namespace {

/// Layers with adapters that share an input.
struct Adapted {
  double in = 0, out = 0, ranks = 0;
  double decomposed = 0;  ///< outputs with a DoRA magnitude
  bool joined = false;    ///< computed in the GEMMs of the layers

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
  const double sums = apart ? 2 : 0;
  return {.forward = (1 + (drops ? 2 : 0)) * a.in + (a.joined ? 0 : sums) * a.out + 3 * a.ranks + 2 * a.decomposed,
          .backward = (1 + sums + (drops ? 4 : 0)) * a.in + 2 * a.out + 3 * a.ranks + 7 * a.decomposed};
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
      Adapted adapted{.joined = joined_stride(model, gemms, {l, group, tokens}) != 0};
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
  Adapted head;
  head.add(params.head());
  const AdapterPasses both = passes_of(head, model);
  sum.head = both.forward + both.backward;
  return sum;
}

JoinedAdapters joined_adapters(const Transformer& model, AdapterGemms gemms, const LayerInPass& of) {
  JoinedAdapters sum;
  for (const LinearGroup& group : model.layers()[of.layer].groups) {
    if (joined_stride(model, gemms, {of.layer, group, of.tokens}) == 0) continue;
    sum.groups += 1;
    for (const LinearId id : group.layers) {
      const LinearParams& p = model.params().layers()[of.layer][id];
      sum.adapters += p.a ? 1 : 0;
      sum.weights += static_cast<double>(p.shape().numel());
    }
  }
  return sum;
}

}  // namespace qtrain
