#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/stages/add.h"
#include "model/stages/norm.h"

namespace qtrain {
namespace {

// Norms after each branch and none before: x + norm(attention(x)), then likewise with the MLP.
Layer olmo2_layer(const ModelConfig& config, std::int64_t index) {
  LayerBuilder b(config, index);
  const TensorId x = b.input();
  const TensorId attended = blocks::self_attention(b, x);
  const TensorId mid = stages::add(
      b, x, stages::norm(b, {.x = attended, .name = "post_attention_layernorm", .gguf = "post_attention_norm"}));
  const TensorId fed = blocks::gated_mlp(b, mid);
  return b.finish(
      stages::add(b, mid, stages::norm(b, {.x = fed, .name = "post_feedforward_layernorm", .gguf = "post_ffw_norm"})));
}

const char* what_olmo2_files_lack(const ModelConfig& c) {
  if (c.qkv_bias) return "attention_bias";
  if (c.tie_word_embeddings) return "tie_word_embeddings: true";
  return c.heads * c.head_dim == c.hidden_size ? nullptr : "head_dim";
}

}  // namespace

extern const Family kOlmo2{.model_type = "olmo2",
                           .architecture = "Olmo2ForCausalLM",
                           .read =
                               [](const ConfigReader& r, ModelConfig& c) {
                                 c.qk_norm = QkNorm::all_heads;
                                 c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
                               },
                           .layer = olmo2_layer,
                           .defaults = R"({"rms_norm_eps": 1e-5, "pad_token_id": 1, "eos_token_id": 50279})",
                           .gguf = {.architecture = "olmo2", .inexpressible = what_olmo2_files_lack}};

}  // namespace qtrain
