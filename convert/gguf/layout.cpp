#include "convert/gguf/layout.h"

#include <fmt/format.h>

#include <string_view>

namespace qtrain {
namespace {

/// A weight of every layer.
struct LayerWeight {
  std::string_view gguf, name;
  std::vector<std::int64_t> shape;
  std::int64_t rotary_heads = 0;
};

std::vector<LayerWeight> layer_weights(const GgufModel& m) {
  const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const bool permuted = m.architecture == "llama";
  const std::int64_t q_heads = permuted ? m.heads : 0, k_heads = permuted ? m.kv_heads : 0;
  std::vector<LayerWeight> weights{{"attn_norm.weight", "input_layernorm.weight", {m.hidden}},
                                   {"attn_q.weight", "self_attn.q_proj.weight", {q, m.hidden}, q_heads},
                                   {"attn_k.weight", "self_attn.k_proj.weight", {kv, m.hidden}, k_heads},
                                   {"attn_v.weight", "self_attn.v_proj.weight", {kv, m.hidden}},
                                   {"attn_output.weight", "self_attn.o_proj.weight", {m.hidden, q}},
                                   {"ffn_norm.weight", "post_attention_layernorm.weight", {m.hidden}},
                                   {"ffn_gate.weight", "mlp.gate_proj.weight", {m.ffn, m.hidden}},
                                   {"ffn_up.weight", "mlp.up_proj.weight", {m.ffn, m.hidden}},
                                   {"ffn_down.weight", "mlp.down_proj.weight", {m.hidden, m.ffn}}};
  if (m.attention_bias || m.architecture == "qwen2") {
    weights.push_back({"attn_q.bias", "self_attn.q_proj.bias", {q}, q_heads});
    weights.push_back({"attn_k.bias", "self_attn.k_proj.bias", {kv}, k_heads});
    weights.push_back({"attn_v.bias", "self_attn.v_proj.bias", {kv}});
  }
  if (m.attention_bias) weights.push_back({"attn_output.bias", "self_attn.o_proj.bias", {m.hidden}});
  if (m.architecture == "qwen3") {
    weights.push_back({"attn_q_norm.weight", "self_attn.q_norm.weight", {m.head_dim}});
    weights.push_back({"attn_k_norm.weight", "self_attn.k_norm.weight", {m.head_dim}});
  }
  return weights;
}

}  // namespace

std::vector<GgufWeight> gguf_layout(const GgufModel& model) {
  std::vector<GgufWeight> all{{"token_embd.weight", "model.embed_tokens.weight", {model.vocab, model.hidden}}};
  const auto of_layer = layer_weights(model);
  for (std::int64_t i = 0; i < model.layers; ++i)
    for (const auto& w : of_layer)
      all.push_back({.gguf = fmt::format("blk.{}.{}", i, w.gguf),
                     .name = fmt::format("model.layers.{}.{}", i, w.name),
                     .shape = w.shape,
                     .rotary_heads = w.rotary_heads});
  all.push_back({"output_norm.weight", "model.norm.weight", {model.hidden}});
  if (!model.tied) all.push_back({"output.weight", "lm_head.weight", {model.vocab, model.hidden}});
  return all;
}

std::int64_t RotaryRows::in_gguf(std::int64_t hf_row) const {
  if (head_dim == 0) return hf_row;
  const std::int64_t head = hf_row / head_dim, in_head = hf_row % head_dim;
  const std::int64_t half = in_head / (head_dim / 2), pair = in_head % (head_dim / 2);
  return head * head_dim + 2 * pair + half;
}

std::int64_t RotaryRows::in_hf(std::int64_t gguf_row) const {
  if (head_dim == 0) return gguf_row;
  const std::int64_t head = gguf_row / head_dim, in_head = gguf_row % head_dim;
  return head * head_dim + in_head % 2 * (head_dim / 2) + in_head / 2;
}

}  // namespace qtrain
