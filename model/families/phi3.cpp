#include <fmt/format.h>

#include "model/families/family.h"
#include "model/rope_config.h"
#include "model/stages/attention.h"
#include "model/stages/glu.h"
#include "model/stages/linear.h"
#include "model/stages/norm.h"
#include "model/stages/rotary.h"

namespace qtrain {
namespace {

// Queries, keys and values are one linear layer, as are gate and up.
TensorId phi3_attention(LayerBuilder& b, TensorId x, TensorId residual) {
  const ModelConfig& c = b.config();
  const LayerAttention& here = c.attention[static_cast<std::size_t>(b.index())];
  const LinearId qkv = b.linear({.module = "self_attn.qkv_proj",
                                 .out = (c.heads + 2 * c.kv_heads) * c.head_dim,
                                 .in = c.hidden_size,
                                 .gguf = "attn_qkv"});
  const LinearId wo =
      b.linear({.module = "self_attn.o_proj", .out = c.hidden_size, .in = c.heads * c.head_dim, .gguf = "attn_output"});
  const stages::SplitHeads heads = stages::split_rotary(b, {.x = stages::linear(b, x, {qkv}).front(),
                                                            .heads = c.heads,
                                                            .kv_heads = c.kv_heads,
                                                            .head_dim = c.head_dim,
                                                            .table = static_cast<std::size_t>(here.rope)});
  const TensorId y = stages::attention(b, {.q = heads.q,
                                           .k = heads.k,
                                           .v = heads.v,
                                           .head_dim = c.head_dim,
                                           .window = here.window,
                                           .scale = c.score_scale()});
  return stages::linear_add(b, {y, wo}, residual);
}

TensorId phi3_mlp(LayerBuilder& b, TensorId x, TensorId residual) {
  const ModelConfig& c = b.config();
  const LinearId both =
      b.linear({.module = "mlp.gate_up_proj", .out = 2 * c.intermediate_size, .in = c.hidden_size, .gguf = "ffn_up"});
  const LinearId down =
      b.linear({.module = "mlp.down_proj", .out = c.hidden_size, .in = c.intermediate_size, .gguf = "ffn_down"});
  const TensorId gated = stages::packed_glu(b, {.x = stages::linear(b, x, {both}).front()});
  return stages::linear_add(b, {gated, down}, residual);
}

Layer phi3_layer(const ModelConfig& config, std::int64_t index) {
  LayerBuilder b(config, index);
  const TensorId x = b.input();
  const TensorId mid = phi3_attention(b, stages::norm(b, {.x = x, .name = "input_layernorm", .gguf = "attn_norm"}), x);
  return b.finish(
      phi3_mlp(b, stages::norm(b, {.x = mid, .name = "post_attention_layernorm", .gguf = "ffn_norm"}), mid));
}

void read_phi3(const ConfigReader& r, ModelConfig& c) {
  if (r.number("resid_pdrop", 0) != 0)
    r.refuse("\"resid_pdrop\" other than 0 is not supported", "set it to 0.0 in config.json");
  c.ropes = {read_rope(r, c)};
  const RopeConfig::Type rope = c.ropes.front().type;
  if (rope != RopeConfig::Type::standard && rope != RopeConfig::Type::longrope)
    r.refuse("\"rope_type\" of this family must be default or longrope");
  const std::int64_t window = r.get("sliding_window") ? r.positive("sliding_window") : 0;
  for (LayerAttention& layer : c.attention) layer.window = window;
}

}  // namespace

extern const Family kPhi3{.model_type = "phi3",
                          .architecture = "Phi3ForCausalLM",
                          .read = read_phi3,
                          .layer = phi3_layer,
                          .defaults = R"({"rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
                                          "original_max_position_embeddings": 4096, "bos_token_id": 1,
                                          "eos_token_id": 32000, "pad_token_id": 32000})",
                          .partial_rotary = true,
                          .old_longrope = true};

}  // namespace qtrain
