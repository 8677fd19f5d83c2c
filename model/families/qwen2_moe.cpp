#include <algorithm>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/stages/add.h"
#include "model/stages/linear.h"
#include "model/stages/norm.h"

namespace qtrain {
namespace {

// Experts as in Qwen3-MoE, and one more that every token goes to, behind a gate.
Layer qwen2_moe_layer(const ModelConfig& config, std::int64_t index) {
  LayerBuilder b(config, index);
  if (!blocks::is_sparse(b)) return blocks::pre_norm_layer(config, index);
  const TensorId x = b.input();
  const TensorId mid =
      blocks::self_attention(b, stages::norm(b, {.x = x, .name = "input_layernorm", .gguf = "attn_norm"}), x);
  const TensorId normed = stages::norm(b, {.x = mid, .name = "post_attention_layernorm", .gguf = "ffn_norm"});
  const TensorId mixed = stages::add(b, mid, blocks::sparse_mlp(b, normed));
  const TensorId shared = blocks::gated_mlp(
      b, {.x = normed, .module = "mlp.shared_expert", .width = config.experts->shared_size, .gguf_end = "_shexp"});
  const LinearId gate =
      b.linear({.module = "mlp.shared_expert_gate", .out = 1, .in = config.hidden_size, .gguf = "ffn_gate_inp_shexp"});
  return b.finish(
      stages::gated_add(b, {.residual = mixed, .branch = shared, .gate = stages::linear(b, normed, {gate}).front()}));
}

// Layers below max_window_layers take turns with and without a window, unless layer_types says otherwise.
void read_qwen2_moe_windows(const ConfigReader& r, ModelConfig& c) {
  const auto slides = sliding_layer_types(r, c);
  if (!r.flag("use_sliding_window", false)) {
    if (slides && std::ranges::find(*slides, true) != slides->end())
      r.refuse("\"layer_types\" has sliding_attention without \"use_sliding_window\"");
    return;
  }
  const double below = r.number("max_window_layers", 28);
  const std::int64_t window = read_window(r, kUsualWindow);
  for (std::size_t l = 0; l < c.attention.size(); ++l)
    if (slides ? (*slides)[l] : l % 2 == 0 && static_cast<double>(l) < below) c.attention[l].window = window;
}

void read_qwen2_moe(const ConfigReader& r, ModelConfig& c) {
  c.qkv_bias = r.flag("qkv_bias", true);
  read_qwen2_moe_windows(r, c);
  set_experts(r, c,
              {.count = r.positive("num_experts", 60),
               .per_token = r.positive("num_experts_per_tok", 4),
               .intermediate_size = r.positive("moe_intermediate_size", 1408),
               .shared_size = r.positive("shared_expert_intermediate_size", 5632),
               .norm = r.flag("norm_topk_prob", false) ? ops::TopKNorm::sum_to_one : ops::TopKNorm::none,
               .named_apart = false,  // PEFT does not convert the targets of this model type
               .layers = sparse_layers(r, c)});
}

// Readers of GGUF files assume biases, experts in every layer, and weights that do not sum to 1; they ignore windows.
const char* what_qwen2_moe_files_lack(const ModelConfig& c) {
  if (!c.qkv_bias) return "qkv_bias: false";
  if (c.experts->norm != ops::TopKNorm::none) return "norm_topk_prob: true";
  return std::ranges::find(c.experts->layers, false) != c.experts->layers.end() ? "mlp_only_layers" : nullptr;
}

constexpr GgufKey kQwen2MoeKeys[] = {expert_count_key("num_experts"),
                                     kExpertsPerTokenKey,
                                     kExpertSizeKey,
                                     {"expert_shared_feed_forward_length", "shared_expert_intermediate_size",
                                      GgufKey::Kind::integer, config_value<&ExpertsConfig::shared_size>}};

}  // namespace

extern const Family kQwen2Moe{.model_type = "qwen2_moe",
                              .architecture = "Qwen2MoeForCausalLM",
                              .read = read_qwen2_moe,
                              .layer = qwen2_moe_layer,
                              .defaults = R"({"num_key_value_heads": 16,
                                              "max_position_embeddings": 32768})",
                              .gguf = {.architecture = "qwen2moe",
                                       .keys = kQwen2MoeKeys,
                                       .assume =
                                           [](Json& config) {
                                             config.erase("attention_bias");
                                             config["norm_topk_prob"] = false;
                                             config["use_sliding_window"] = false;
                                           },
                                       .inexpressible = what_qwen2_moe_files_lack}};

}  // namespace qtrain
