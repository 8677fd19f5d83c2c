#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {
namespace {

// Experts in every layer, and norms of all queries and of all keys before the rotation.
void read_olmoe(const ConfigReader& r, ModelConfig& c) {
  if (r.get("clip_qkv")) r.refuse("\"clip_qkv\" is not supported", "set it to null in config.json");
  c.qk_norm = QkNorm::all_heads;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  set_experts(r, c,
              {.count = r.positive(r.get("num_experts") ? "num_experts" : "num_local_experts", 64),
               .per_token = r.positive("num_experts_per_tok", 8),
               .intermediate_size = c.intermediate_size,
               .norm = r.flag("norm_topk_prob", false) ? ops::TopKNorm::sum_to_one : ops::TopKNorm::none,
               .layers = std::vector<bool>(c.attention.size(), true)});
}

const char* what_olmoe_files_lack(const ModelConfig& c) {
  if (c.qkv_bias) return "attention_bias";
  if (c.experts->norm != ops::TopKNorm::none) return "norm_topk_prob: true";
  return c.heads * c.head_dim == c.hidden_size ? nullptr : "head_dim";
}

constexpr GgufKey kOlmoeKeys[] = {expert_count_key("num_experts"), kExpertsPerTokenKey};

}  // namespace

extern const Family kOlmoe{.model_type = "olmoe",
                           .architecture = "OlmoeForCausalLM",
                           .read = read_olmoe,
                           .layer = blocks::pre_norm_layer,
                           .defaults = R"({"rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
                                           "router_aux_loss_coef": 0.01, "pad_token_id": 1, "eos_token_id": 50279})",
                           .gguf = {.architecture = "olmoe",
                                    .keys = kOlmoeKeys,
                                    .assume = [](Json& config) { config["norm_topk_prob"] = false; },
                                    .inexpressible = what_olmoe_files_lack}};

}  // namespace qtrain
