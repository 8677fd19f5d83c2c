#include <algorithm>

#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {
namespace {

void read_qwen3_moe(const ConfigReader& r, ModelConfig& c) {
  c.qk_norm = QkNorm::per_head;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  if (r.flag("use_sliding_window", false))
    for (LayerAttention& layer : c.attention) layer.window = read_window(r, 4096);
  // the key since version 5, and before it
  const char* count = r.get("num_local_experts") ? "num_local_experts" : "num_experts";
  set_experts(r, c,
              {.count = r.positive(count, 128),
               .per_token = r.positive("num_experts_per_tok", 8),
               .intermediate_size = r.positive("moe_intermediate_size", 768),
               .norm = r.flag("norm_topk_prob", false) ? ops::TopKNorm::sum_to_one : ops::TopKNorm::none,
               .layers = sparse_layers(r, c)});
}

// The key whose value GGUF files cannot express, or null: their readers assume experts in every layer, with weights
// that sum to 1.
const char* what_moe_files_lack(const ModelConfig& c) {
  if (c.qkv_bias) return "attention_bias";
  if (c.experts->norm != ops::TopKNorm::sum_to_one) return "norm_topk_prob: false";
  return std::ranges::find(c.experts->layers, false) != c.experts->layers.end() ? "mlp_only_layers" : nullptr;
}

constexpr GgufKey kQwen3MoeKeys[] = {expert_count_key("num_experts"), kExpertsPerTokenKey, kExpertSizeKey};

}  // namespace

extern const Family kQwen3Moe{.model_type = "qwen3_moe",
                              .architecture = "Qwen3MoeForCausalLM",
                              .read = read_qwen3_moe,
                              .layer = blocks::pre_norm_layer,
                              .defaults = R"({"num_key_value_heads": 4, "max_position_embeddings": 32768})",
                              .gguf = {.architecture = "qwen3moe",
                                       .keys = kQwen3MoeKeys,
                                       .assume =
                                           [](Json& config) {
                                             config["norm_topk_prob"] = true;
                                             config["use_sliding_window"] = !config.at("sliding_window").is_null();
                                           },
                                       .inexpressible = what_moe_files_lack}};

}  // namespace qtrain
