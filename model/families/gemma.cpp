#include <cmath>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/stages/add.h"
#include "model/stages/norm.h"

namespace qtrain {
namespace {

// Norms before and after each branch: x + norm(attention(norm(x))), then the same with the MLP.
Layer gemma2_layer(const ModelConfig& config, std::int64_t index) {
  LayerBuilder b(config, index);
  const TensorId x = b.input();
  const TensorId attended =
      blocks::self_attention(b, stages::norm(b, {.x = x, .name = "input_layernorm", .gguf = "attn_norm"}));
  const TensorId mid = stages::add(
      b, x, stages::norm(b, {.x = attended, .name = "post_attention_layernorm", .gguf = "post_attention_norm"}));
  const TensorId fed =
      blocks::gated_mlp(b, stages::norm(b, {.x = mid, .name = "pre_feedforward_layernorm", .gguf = "ffn_norm"}));
  return b.finish(
      stages::add(b, mid, stages::norm(b, {.x = fed, .name = "post_feedforward_layernorm", .gguf = "post_ffw_norm"})));
}

constexpr std::int64_t kUsualWindow = 4096;

// null: none.
double read_softcap(const ConfigReader& r, const char* key, double otherwise) {
  return r.json.contains(key) && !r.get(key) ? 0 : r.magnitude(key, otherwise);
}

// Every other layer slides, the first among them, unless layer_types says otherwise.
void read_gemma_windows(const ConfigReader& r, ModelConfig& c) {
  const bool none = r.json.contains("sliding_window") && !r.get("sliding_window");
  const std::int64_t window = none ? 0 : r.positive("sliding_window", kUsualWindow);
  set_windows(r, c, window, 0);
  if (r.get("layer_types")) return;
  for (std::size_t l = 1; l < c.attention.size(); l += 2) c.attention[l].window = 0;
}

void read_gemma2(const ConfigReader& r, ModelConfig& c) {
  if (r.flag("use_bidirectional_attention", false)) r.refuse("\"use_bidirectional_attention\" is not supported");
  c.norm_offset = 1;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
  c.rounds_embedding_scale = true;
  c.attention_scale = 1 / std::sqrt(r.magnitude("query_pre_attn_scalar", 256));
  c.attention_softcap = read_softcap(r, "attn_logit_softcapping", 50);
  c.logit_softcap = read_softcap(r, "final_logit_softcapping", 30);
  read_gemma_windows(r, c);
}

// What llama.cpp takes for query_pre_attn_scalar: it knows the model of 27B by its layers.
std::int64_t gguf_scalar(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t head_dim) {
  constexpr std::int64_t kLayersOf27B = 46;
  return layers == kLayersOf27B ? hidden / heads : head_dim;
}

void assume_scalar(Json& config) {
  const auto size = [&](const char* key) { return config.at(key).get<std::int64_t>(); };
  config["query_pre_attn_scalar"] =
      gguf_scalar(size("num_hidden_layers"), size("hidden_size"), size("num_attention_heads"), size("head_dim"));
}

const char* what_gemma2_files_lack(const ModelConfig& c) {
  if (c.attention_softcap == 0) return "attn_logit_softcapping: null";
  if (c.logit_softcap == 0) return "final_logit_softcapping: null";
  if (c.qkv_bias) return "attention_bias";
  if (!c.tie_word_embeddings) return "tie_word_embeddings: false";
  const auto scalar = static_cast<double>(gguf_scalar(c.layers, c.hidden_size, c.heads, c.head_dim));
  return std::abs(c.score_scale() * std::sqrt(scalar) - 1) > 1e-9 ? "query_pre_attn_scalar" : nullptr;
}

constexpr GgufKey kGemma2Keys[] = {{"attn_logit_softcapping", "attn_logit_softcapping", GgufKey::Kind::number,
                                    [](const ModelConfig& c) { return c.attention_softcap; }},
                                   {"final_logit_softcapping", "final_logit_softcapping", GgufKey::Kind::number,
                                    [](const ModelConfig& c) { return c.logit_softcap; }}};

}  // namespace

extern const Family kGemma2{.model_type = "gemma2",
                            .architecture = "Gemma2ForCausalLM",
                            .read = read_gemma2,
                            .layer = gemma2_layer,
                            .head_dim = 256,
                            .activation_key = "hidden_activation",
                            .activation = "gelu_pytorch_tanh",
                            .ties_head = true,
                            .gguf = {.architecture = "gemma2",
                                     .full_attention_every = 2,
                                     .window = kUsualWindow,
                                     .keys = kGemma2Keys,
                                     .assume = assume_scalar,
                                     .inexpressible = what_gemma2_files_lack}};

}  // namespace qtrain
