#include <algorithm>

#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {
namespace {

// Layers have experts but for those of mlp_only_layers and those that decoder_sparse_step leaves out.
std::vector<bool> sparse_layers(const ConfigReader& r, const ModelConfig& c) {
  const std::int64_t step = r.positive("decoder_sparse_step", 1);
  std::vector<bool> layers;
  for (std::int64_t l = 0; l < c.layers; ++l) layers.push_back((l + 1) % step == 0);
  const Json* dense = r.get("mlp_only_layers");
  if (!dense) return layers;
  if (!dense->is_array()) r.refuse("\"mlp_only_layers\" must be a list of layers");
  for (const Json& layer : *dense) {
    if (!layer.is_number_integer()) r.refuse("\"mlp_only_layers\" must hold numbers of layers");
    if (layer >= 0 && layer < c.layers) layers[layer.get<std::size_t>()] = false;
  }
  return layers;
}

void read_qwen3_moe(const ConfigReader& r, ModelConfig& c) {
  c.qk_norm = QkNorm::per_head;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  const bool windowless = r.json.contains("sliding_window") && !r.get("sliding_window");
  if (r.flag("use_sliding_window", false) && !windowless)
    for (LayerAttention& layer : c.attention) layer.window = r.positive("sliding_window", 4096);
  const char* count = r.get("num_local_experts") ? "num_local_experts" : "num_experts";  // since version 5, before it
  ExpertsConfig e{.count = r.positive(count, 128),
                  .per_token = r.positive("num_experts_per_tok", 8),
                  .intermediate_size = r.positive("moe_intermediate_size", 768),
                  .norm = r.flag("norm_topk_prob", false) ? ops::TopKNorm::sum_to_one : ops::TopKNorm::none,
                  .layers = sparse_layers(r, c),
                  .balance_coefficient = r.number("router_aux_loss_coef", 0.001),
                  .is_balanced = r.flag("output_router_logits", false)};
  constexpr double kMostElements = 1e15;
  if (static_cast<double>(e.count) * static_cast<double>(e.intermediate_size) * static_cast<double>(c.hidden_size) >
      kMostElements)
    r.refuse("\"moe_intermediate_size\" is out of range");
  if (e.count > ops::kMostExperts || e.per_token > std::min(e.count, ops::kMostChoices))
    r.refuse("\"num_experts\" or \"num_experts_per_tok\" is out of range");
  c.experts = std::move(e);
}

// Readers of the file give every layer experts, whose choices count by what they share of 1.
const char* what_moe_files_lack(const ModelConfig& c) {
  if (c.qkv_bias) return "attention_bias";
  if (c.experts->norm != ops::TopKNorm::sum_to_one) return "norm_topk_prob: false";
  return std::ranges::find(c.experts->layers, false) != c.experts->layers.end() ? "mlp_only_layers" : nullptr;
}

constexpr GgufKey kQwen3MoeKeys[] = {
    {"expert_count", "num_experts", GgufKey::Kind::integer,
     [](const ModelConfig& c) { return static_cast<double>(c.experts->count); }},
    {"expert_used_count", "num_experts_per_tok", GgufKey::Kind::integer,
     [](const ModelConfig& c) { return static_cast<double>(c.experts->per_token); }},
    {"expert_feed_forward_length", "moe_intermediate_size", GgufKey::Kind::integer,
     [](const ModelConfig& c) { return static_cast<double>(c.experts->intermediate_size); }}};

}  // namespace

extern const Family kQwen3Moe{.model_type = "qwen3_moe",
                              .architecture = "Qwen3MoeForCausalLM",
                              .read = read_qwen3_moe,
                              .layer = blocks::pre_norm_layer,
                              .gguf = {.architecture = "qwen3moe",
                                       .keys = kQwen3MoeKeys,
                                       .assume =
                                           [](Json& config) {
                                             config["norm_topk_prob"] = true;
                                             config["use_sliding_window"] = !config.at("sliding_window").is_null();
                                           },
                                       .inexpressible = what_moe_files_lack}};

}  // namespace qtrain
