#include "model/adapter_params.h"

#include <cmath>

namespace qtrain {
namespace {

/// With a = sqrt(5), as PEFT: bound 1 / sqrt(in).
Init kaiming_uniform(std::int64_t in) {
  return {Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(in))};
}

}  // namespace

bool AdapterParams::trains_whole(std::string_view module) const {
  if (!options_.lora) return false;
  const LoraConfig& lora = *options_.lora;
  const bool one = options_.config.tie_word_embeddings && lora.ensure_weight_tying;
  if (one && (module == kEmbeddingName || module == kHeadName))
    return is_saved(lora, kEmbeddingName) || is_saved(lora, kHeadName);
  return is_saved(lora, module);
}

bool AdapterParams::adapts(std::string_view module) const {
  return options_.lora && is_target(*options_.lora, module) && !trains_whole(module);
}

Param* AdapterParams::declare(const std::string& name, Shape shape, Init init) {
  return &store_.declare({.name = std::string(kPeftPrefix) + name,
                          .shape = shape,
                          .dtype = options_.full_dtype(),
                          .init = init,
                          .update = options_.adapter});
}

void AdapterParams::declare_factors(std::span<LinearParams* const> layers) {
  for (LinearParams* p : layers) {
    if (!adapts(p->module)) continue;
    const std::int64_t in = p->shape()[1];
    p->scale = options_.lora->scale_of(p->module);
    p->a = declare(p->module + ".lora_A.weight", {options_.lora->rank_of(p->module), in}, kaiming_uniform(in));
  }
  for (LinearParams* p : layers)
    if (p->a) p->b = declare(p->module + ".lora_B.weight", {p->shape()[0], p->rank()}, {});
}

void AdapterParams::declare_magnitude(LinearParams& layer) {
  if (!layer.b || !options_.lora->dora) return;
  const Shape out{layer.b->spec.shape[0]};
  layer.magnitude = declare(layer.module + ".lora_magnitude_vector", out, {Init::Kind::ones, 0});
  layer.norm =
      &norms_.declare({.name = layer.module + ".weight", .shape = out, .dtype = layer.b->spec.dtype, .init = {}});
}

void AdapterParams::declare_embedding(LinearParams& embedding, Shape table) {
  if (options_.lora->dora)
    fail(ErrorKind::usage, {.cause = "use_dora is for linear layers, the adapter is on embed_tokens too",
                            .remedy = "leave embed_tokens out of lora_target_modules, or train it whole "
                                      "(lora_modules_to_save)"});
  const std::int64_t r = options_.lora->rank_of(embedding.module);
  embedding.scale = options_.lora->scale_of(embedding.module);
  embedding.a = declare(embedding.module + ".lora_embedding_A", {table[0], r}, {});
  embedding.b = declare(embedding.module + ".lora_embedding_B", {table[1], r}, {Init::Kind::normal, 1});
  embedding.a->spec.transposed_in_files = true;
  for (Param* p : {embedding.a, embedding.b}) p->spec.role = Role::embedding;
}

void AdapterParams::allocate() {
  store_.allocate();
  norms_.allocate();
}

}  // namespace qtrain
