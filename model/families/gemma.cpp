#include <cmath>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/rope_config.h"
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

// A softcap; null in the file means none.
double read_softcap(const ConfigReader& r, const char* key, double otherwise) {
  const bool none = r.json.contains(key) ? !r.get(key) : otherwise == 0;
  return none ? 0 : r.positive_number(key, otherwise);
}

void read_gemma(const ConfigReader& r, ModelConfig& c) {
  if (r.flag("use_bidirectional_attention", false)) r.refuse("\"use_bidirectional_attention\" is not supported");
  c.norm_offset = 1;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
  c.rounds_embedding_scale = true;
  c.attention_scale = 1 / std::sqrt(r.positive_number("query_pre_attn_scalar", 256));
}

void read_gemma2(const ConfigReader& r, ModelConfig& c) {
  read_gemma(r, c);
  c.attention_softcap = read_softcap(r, "attn_logit_softcapping", 50);
  c.logit_softcap = read_softcap(r, "final_logit_softcapping", 30);
  set_windows_but_every(2, r, c);
}

// Sliding layers rotate with a base of their own.
std::vector<RopeConfig> read_gemma3_ropes(const ConfigReader& r, const ModelConfig& c) {
  return {read_rope_of_kind(r, c, {"full_attention", r.positive_number("rope_theta", 1e6)}),
          read_rope_of_kind(r, c, {"sliding_attention", r.positive_number("rope_local_base_freq", 1e4)})};
}

void read_gemma3(const ConfigReader& r, ModelConfig& c) {
  read_gemma(r, c);
  c.qk_norm = QkNorm::per_head;
  if (r.get("attn_logit_softcapping"))
    r.refuse("\"attn_logit_softcapping\" is not supported", "transformers ignores it in this family: remove it");
  c.logit_softcap = read_softcap(r, "final_logit_softcapping", 0);
  c.ropes = read_gemma3_ropes(r, c);
  const auto full = static_cast<std::size_t>(r.positive("sliding_window_pattern", 6));
  const std::vector<bool> slides = set_windows_but_every(full, r, c);
  for (std::size_t l = 0; l < slides.size(); ++l) c.attention[l].rope = slides[l] ? 1 : 0;
}

// llama.cpp derives query_pre_attn_scalar from the size of the model: the 27B models, recognized by their number of
// layers, use another value.
constexpr std::int64_t kLayersOf27B = 46, kLayersOf27B3 = 62;

template <std::int64_t kLargest>
std::int64_t gguf_scalar(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t head_dim) {
  return layers == kLargest ? hidden / heads : head_dim;
}

template <std::int64_t kLargest>
void assume_scalar(Json& config) {
  const auto size = [&](const char* key) { return config.at(key).get<std::int64_t>(); };
  config["query_pre_attn_scalar"] = gguf_scalar<kLargest>(size("num_hidden_layers"), size("hidden_size"),
                                                          size("num_attention_heads"), size("head_dim"));
}

template <std::int64_t kLargest>
bool has_scalar_of_files(const ModelConfig& c) {
  const auto scalar = static_cast<double>(gguf_scalar<kLargest>(c.layers, c.hidden_size, c.heads, c.head_dim));
  return std::abs(c.score_scale() * std::sqrt(scalar) - 1) <= 1e-9;
}

// If the file has no base for sliding layers, llama.cpp uses 10000.
void assume_gemma3(Json& config) {
  if (!config.contains("rope_local_base_freq")) config["rope_local_base_freq"] = 1e4;
  assume_scalar<kLayersOf27B3>(config);
}

const char* what_gemma2_files_lack(const ModelConfig& c) {
  if (c.attention_softcap == 0) return "attn_logit_softcapping: null";
  if (c.logit_softcap == 0) return "final_logit_softcapping: null";
  if (c.qkv_bias) return "attention_bias";
  if (!c.tie_word_embeddings) return "tie_word_embeddings: false";
  return has_scalar_of_files<kLayersOf27B>(c) ? nullptr : "query_pre_attn_scalar";
}

const char* what_gemma3_files_lack(const ModelConfig& c) {
  if (c.qkv_bias) return "attention_bias";
  if (c.ropes[1].type != RopeConfig::Type::standard) return "rope_parameters: sliding_attention";
  return has_scalar_of_files<kLayersOf27B3>(c) ? nullptr : "query_pre_attn_scalar";
}

constexpr GgufKey kLogitSoftcapKey{"final_logit_softcapping", "final_logit_softcapping", GgufKey::Kind::number,
                                   config_value<&ModelConfig::logit_softcap>};
constexpr GgufKey kGemma2Keys[] = {{"attn_logit_softcapping", "attn_logit_softcapping", GgufKey::Kind::number,
                                    config_value<&ModelConfig::attention_softcap>},
                                   kLogitSoftcapKey};

constexpr GgufKey kGemma3Keys[] = {kLogitSoftcapKey,
                                   {"rope.freq_base_swa", "rope_local_base_freq", GgufKey::Kind::number,
                                    [](const ModelConfig& c) { return c.ropes[1].theta; }}};

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
                                     .window = kUsualWindow,
                                     .keys = kGemma2Keys,
                                     .assume = assume_scalar<kLayersOf27B>,
                                     .inexpressible = what_gemma2_files_lack}};

// Published configs also omit sizes.
extern const Family kGemma3{.model_type = "gemma3_text",
                            .architecture = "Gemma3ForCausalLM",
                            .read = read_gemma3,
                            .layer = gemma_layer,
                            .defaults = R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
                                            "num_hidden_layers": 26, "num_attention_heads": 8,
                                            "num_key_value_heads": 4, "head_dim": 256,
                                            "max_position_embeddings": 131072, "tie_word_embeddings": true,
                                            "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2})",
                            .activation_key = "hidden_activation",
                            .activation = "gelu_pytorch_tanh",
                            .gguf = {.architecture = "gemma3",
                                     .full_attention_every = 6,
                                     .keys = kGemma3Keys,
                                     .assume = assume_gemma3,
                                     .inexpressible = what_gemma3_files_lack}};

}  // namespace qtrain
