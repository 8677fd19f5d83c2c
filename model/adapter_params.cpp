#include "model/adapter_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qtrain {
namespace {

/// Kaiming uniform with a = sqrt(5), as in PEFT: the bound is 1 / sqrt(in).
Init kaiming_uniform(std::int64_t in) {
  return {Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(in))};
}

constexpr Init kStandardNormal{Init::Kind::normal, 1};

}  // namespace

bool AdapterParams::trains_whole(std::string_view module) const {
  if (!options_.lora) return false;
  const LoraConfig& lora = *options_.lora;
  const bool one = options_.config.tie_word_embeddings && lora.ensure_weight_tying;
  if (one && (module == kEmbeddingName || module == kHeadName))
    return is_saved(lora, kEmbeddingName) || is_saved(lora, kHeadName);
  return is_saved(lora, module);
}

bool AdapterParams::adapts(const LinearParams& layer) const {
  if (layer.kind == LinearKind::plain) return adapts(std::string_view(layer.module));
  return adapts_parameter(layer.module + ".weight") && !trains_whole(layer.module);
}

// PEFT supports neither dropout nor DoRA for adapters on parameters.
void AdapterParams::require_plain(const std::string& what) const {
  if (options_.lora->dropout == 0 && !options_.lora->dora) return;
  fail(ErrorKind::usage, {.cause = "dropout and DoRA are not supported for adapters of " + what,
                          .remedy = "set lora_dropout to 0 and use_dora to false, or leave routers and experts out of "
                                    "lora_target_modules"});
}

// As in PEFT, only adapters on linear layers can start from base weights.
void AdapterParams::require_own_init(const std::string& what) const {
  const LoraInit& init = options_.lora->init;
  if (!init.reads_base()) return;
  fail(ErrorKind::usage,
       {.cause = fmt::format("init_lora_weights {} is not supported for adapters of {}", init.json().dump(), what),
        .remedy = fmt::format("set it to true, or leave {} out of lora_target_modules", what)});
}

void AdapterParams::require_rank(const LinearParams& layer) const {
  const std::int64_t side = std::min(layer.shape()[0], layer.shape()[1]), rank = options_.lora->rank_of(layer.module);
  if (!options_.lora->init.reads_base() || rank <= side) return;
  fail(ErrorKind::usage,
       {.cause = fmt::format("init_lora_weights {} needs a rank of at most {} for {}, which is {}",
                             options_.lora->init.json().dump(), side, layer.module, to_string(layer.shape())),
        .remedy = "lower lora_r, or the layer's rank in rank_pattern"});
}

Init AdapterParams::init_of_a(std::int64_t in, std::int64_t rank) const {
  if (options_.lora->init.kind == LoraInit::Kind::gaussian) return {Init::Kind::normal, 1 / static_cast<double>(rank)};
  return kaiming_uniform(in);
}

Init AdapterParams::init_of_b(std::int64_t rank) const {
  return options_.lora->init.kind == LoraInit::Kind::random ? kaiming_uniform(rank) : Init{};
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

// A file has the initial factor too, next to each row of B, so one rank writes all of it.
Param* AdapterParams::declare_factor(const std::string& name, Shape shape, Init init) {
  Param* p = declare(name, shape, init);
  if (!options_.lora->init.changes_base()) return p;
  p->spec.cut = Cut::never;
  initial_.declare({.name = p->spec.name, .shape = shape});
  return p;
}

void AdapterParams::declare_factors(std::span<LinearParams* const> layers) {
  for (LinearParams* p : layers) {
    if (!adapts(*p)) continue;
    const bool parameter = p->kind == LinearKind::router;
    if (parameter) {
      require_plain("routers");
      require_own_init("routers");
    }
    require_rank(*p);
    const std::string name = p->module + (parameter ? ".weight" : "");
    const std::int64_t in = p->shape()[1];
    p->scale = options_.lora->scale_of(name);
    const std::int64_t rank = options_.lora->rank_of(name);
    p->a = declare_factor(p->module + ".lora_A.weight", {rank, in}, init_of_a(in, rank));
  }
  for (LinearParams* p : layers)
    if (p->a) p->b = declare_factor(p->module + ".lora_B.weight", {p->shape()[0], p->rank()}, init_of_b(p->rank()));
}

bool AdapterParams::adapts_parameter(std::string_view parameter) const {
  return options_.lora && names_parameter(*options_.lora, parameter);
}

// PEFT stores B of all experts as [parts * out, r * E]: the experts of one rank component are contiguous.
void AdapterParams::declare_factors(const ExpertFactors& f) {
  if (!adapts_parameter(f.parameter)) return;
  require_plain("experts");
  require_own_init("experts");
  const Shape& w = f.layers.front()->weight->spec.shape;
  const auto parts = static_cast<std::int64_t>(f.layers.size());
  const std::int64_t E = w[0], out = w[1], in = w[2], r = options_.lora->rank_of(f.parameter);
  const std::string module = f.parameter.substr(0, f.parameter.rfind('.')) + (f.outer ? "" : ".base_layer");
  Param* a = declare(module + ".lora_A.weight", {E * r, in}, init_of_a(in, r));
  Param* b = declare(module + ".lora_B.weight", {parts * E * out, r}, init_of_b(E * r));
  b->spec.file_order = FileOrder{.shape = {parts, E, out, r}, .axes = {0, 2, 3, 1}, .in_files = {parts * out, r * E}};
  for (std::int64_t i = 0; i < parts; ++i) {
    ExpertsParams& p = *f.layers[static_cast<std::size_t>(i)];
    p.a = a;
    p.b = b;
    p.part = i;
    p.parts = parts;
    p.scale = options_.lora->scale_of(f.parameter);
  }
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
    fail(ErrorKind::usage, {.cause = "use_dora only supports linear layers, but embed_tokens is a target too",
                            .remedy = "remove embed_tokens from lora_target_modules, or train it whole "
                                      "(lora_modules_to_save)"});
  require_own_init("embed_tokens");
  const std::int64_t r = options_.lora->rank_of(embedding.module);
  embedding.scale = options_.lora->scale_of(embedding.module);
  const Init of_a = options_.lora->init.kind == LoraInit::Kind::random ? kStandardNormal : Init{};
  embedding.a = declare(embedding.module + ".lora_embedding_A", {table[0], r}, of_a);
  embedding.b = declare(embedding.module + ".lora_embedding_B", {table[1], r}, kStandardNormal);
  embedding.a->spec.file_order = FileOrder::transposed(table[0], r);
  for (Param* p : {embedding.a, embedding.b}) p->spec.role = Role::embedding;
}

void AdapterParams::allocate() {
  store_.allocate();
  norms_.allocate();
  initial_.allocate();
}

}  // namespace qtrain
