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

// null: none.
double read_softcap(const ConfigReader& r, const char* key, double otherwise) {
  return r.json.contains(key) && !r.get(key) ? 0 : r.magnitude(key, otherwise);
}

// Every other layer slides, the first among them, unless layer_types says otherwise.
void read_gemma_windows(const ConfigReader& r, ModelConfig& c) {
  const bool none = r.json.contains("sliding_window") && !r.get("sliding_window");
  const std::int64_t window = none ? 0 : r.positive("sliding_window", 4096);
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

}  // namespace

extern const Family kGemma2{.model_type = "gemma2",
                            .architecture = "Gemma2ForCausalLM",
                            .read = read_gemma2,
                            .layer = gemma2_layer,
                            .head_dim = 256,
                            .activation_key = "hidden_activation",
                            .activation = "gelu_pytorch_tanh",
                            .ties_head = true};

}  // namespace qtrain
