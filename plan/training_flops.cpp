#include "plan/training_flops.h"

namespace qtrain {
namespace {

bool is_of_experts(const Param& p) {
  return p.spec.name.find(".experts.") != std::string::npos;
}

// Elements of weights with a DoRA magnitude, whose gradient needs another product with the input.
double decomposed_elements(const Transformer& model) {
  double elements = 0;
  for (const LayerParams& layer : model.params().layers())
    for (const LinearParams& l : layer.linears)
      if (l.magnitude) elements += static_cast<double>(l.shape().numel());
  return elements;
}

}  // namespace

TrainingFlops training_flops(Transformer& model, const TokenMix& mix, const RecomputePolicy& policy) {
  const ModelConfig& c = model.config();
  const double experts =
      c.experts ? static_cast<double>(c.experts->per_token) / static_cast<double>(c.experts->count) : 0;
  const double weights = static_cast<double>(model.params().linear_elements()) +
                         experts * static_cast<double>(model.params().expert_elements());
  double adapters = 0;
  for (const Param& p : model.adapter().all())
    if (p.spec.role == Role::weight)
      adapters += static_cast<double>(p.spec.shape.numel()) * (is_of_experts(p) ? experts : 1);
  const auto layers = static_cast<double>(c.layers);
  const double attention = 2 * mix.context * static_cast<double>(c.heads * c.head_dim);
  const double forward = 2 * (weights + adapters) / layers + attention;
  const bool frozen = model.options().base == Update::frozen;
  const double gradients =
      ((frozen ? 2 : 4) * weights + 4 * adapters + 2 * decomposed_elements(model)) / layers + 2 * attention;
  const auto group = static_cast<double>(policy.group());
  return {.layers = layers,
          .forward = forward,
          .backward = gradients + (policy.whole_blocks() ? forward : 0),
          .attention = attention,
          .head = (frozen ? 4 : 6) * static_cast<double>(c.vocab_size * c.hidden_size) * mix.target_share,
          .inputs = policy.whole_blocks() ? (group - 1) / group * layers * forward : 0};
}

}  // namespace qtrain
