#include <cmath>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/stages/add.h"
#include "model/stages/norm.h"

namespace qtrain {
namespace {

// Norms before and after each branch: x + norm(attention(norm(x))), then the same with the MLP.
Layer gemma_layer(const ModelConfig& config, std::int64_t index) {
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

// null: none.
double read_softcap(const ConfigReader& r, const char* key, double otherwise) {
  const bool none = r.json.contains(key) ? !r.get(key) : otherwise == 0;
  return none ? 0 : r.magnitude(key, otherwise);
}

// All layers slide but every `full`-th, unless layer_types says otherwise. Whether each does.
std::vector<bool> read_sliding_layers(const ConfigReader& r, ModelConfig& c, std::size_t full) {
  std::vector<bool> slides;
  for (std::size_t l = 1; l <= c.attention.size(); ++l) slides.push_back(l % full != 0);
  slides = sliding_layer_types(r, c).value_or(slides);
  const std::int64_t window = read_window(r, 4096);
  for (std::size_t l = 0; l < slides.size(); ++l) c.attention[l].window = slides[l] ? window : 0;
  return slides;
}

void read_gemma(const ConfigReader& r, ModelConfig& c) {
  if (r.flag("use_bidirectional_attention", false)) r.refuse("\"use_bidirectional_attention\" is not supported");
  c.norm_offset = 1;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
  c.rounds_embedding_scale = true;
  c.attention_scale = 1 / std::sqrt(r.magnitude("query_pre_attn_scalar", 256));
}

void read_gemma2(const ConfigReader& r, ModelConfig& c) {
  read_gemma(r, c);
  c.attention_softcap = read_softcap(r, "attn_logit_softcapping", 50);
  c.logit_softcap = read_softcap(r, "final_logit_softcapping", 30);
  read_sliding_layers(r, c, 2);
}

// llama.cpp knows query_pre_attn_scalar by the size of the model: another one in 27B, which it knows by its layers.
constexpr std::int64_t kLayersOf27B = 46;

template <std::int64_t kLargest>
void assume_scalar(Json& config) {
  const auto number = [&](const char* key) { return config.at(key).get<std::int64_t>(); };
  const bool largest = number("num_hidden_layers") == kLargest;
  config["query_pre_attn_scalar"] =
      largest ? number("hidden_size") / number("num_attention_heads") : number("head_dim");
}

bool has_scalar_of_files(const ModelConfig& c, std::int64_t largest) {
  const std::int64_t scalar = c.layers == largest ? c.hidden_size / c.heads : c.head_dim;
  return std::abs(c.score_scale() * std::sqrt(static_cast<double>(scalar)) - 1) <= 1e-9;
}

const char* what_gemma2_files_lack(const ModelConfig& c) {
  if (c.attention_softcap == 0) return "attn_logit_softcapping: null";
  if (c.logit_softcap == 0) return "final_logit_softcapping: null";
  if (c.qkv_bias) return "attention_bias";
  if (!c.tie_word_embeddings) return "tie_word_embeddings: false";
  return has_scalar_of_files(c, kLayersOf27B) ? nullptr : "query_pre_attn_scalar";
}

constexpr GgufKey kGemma2Keys[] = {{"attn_logit_softcapping", "attn_logit_softcapping", GgufKey::Kind::number,
                                    [](const ModelConfig& c) { return c.attention_softcap; }},
                                   {"final_logit_softcapping", "final_logit_softcapping", GgufKey::Kind::number,
                                    [](const ModelConfig& c) { return c.logit_softcap; }}};

}  // namespace

extern const Family kGemma2{.model_type = "gemma2",
                            .architecture = "Gemma2ForCausalLM",
                            .read = read_gemma2,
                            .layer = gemma_layer,
                            .defaults = R"({"num_key_value_heads": 4, "head_dim": 256,
                                            "max_position_embeddings": 8192, "tie_word_embeddings": true,
                                            "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2})",
                            .activation_key = "hidden_activation",
                            .activation = "gelu_pytorch_tanh",
                            .gguf = {.architecture = "gemma2",
                                     .full_attention_every = 2,
                                     .keys = kGemma2Keys,
                                     .assume = assume_scalar<kLayersOf27B>,
                                     .inexpressible = what_gemma2_files_lack}};

}  // namespace qtrain
