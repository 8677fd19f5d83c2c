#include "model/families/blocks.h"

#include <fmt/format.h>

#include "model/stages/add.h"
#include "model/stages/attention.h"
#include "model/stages/experts.h"
#include "model/stages/glu.h"
#include "model/stages/linear.h"
#include "model/stages/norm.h"
#include "model/stages/rotary.h"

namespace qtrain::blocks {
namespace {

Bias bias(bool has) {
  return has ? Bias::yes : Bias::no;
}

VectorId head_norm(LayerBuilder& b, const std::string& which) {
  if (b.config().qk_norm != QkNorm::per_head) return VectorId::none;
  return b.vector({.name = "self_attn." + which + "_norm.weight",
                   .size = b.config().head_dim,
                   .init = b.config().norm_init(),
                   .gguf = "attn_" + which + "_norm.weight"});
}

VectorId attention_sinks(LayerBuilder& b) {
  const ModelConfig& c = b.config();
  if (!c.attention_sinks) return VectorId::none;
  return b.vector({.name = "self_attn.sinks",
                   .size = c.heads,
                   .init = {Init::Kind::normal, c.initializer_range},
                   .gguf = "attn_sinks.weight",
                   .decay = Decay::yes});
}

// The names are those of Hunyuan.
stages::Rotated normed_after_rotation(LayerBuilder& b, const stages::Rotated& heads) {
  if (b.config().qk_norm != QkNorm::per_rotated_head) return heads;
  const auto norm = [&](TensorId x, const char* name, const char* gguf) {
    return stages::norm(b, {.x = x, .name = name, .gguf = gguf, .head_dim = b.config().head_dim});
  };
  return {.q = norm(heads.q, "self_attn.query_layernorm", "attn_q_norm"),
          .k = norm(heads.k, "self_attn.key_layernorm", "attn_k_norm")};
}

}  // namespace

TensorId self_attention(LayerBuilder& b, TensorId x, std::optional<TensorId> residual) {
  const ModelConfig& c = b.config();
  const LayerAttention& here = c.attention[static_cast<std::size_t>(b.index())];
  const std::int64_t hidden = b.width(x);
  const auto projection = [&](const std::string& which, std::int64_t heads) {
    const bool rotates = which != "v";
    return b.linear({.module = "self_attn." + which + "_proj",
                     .out = heads * c.head_dim,
                     .in = hidden,
                     .bias = bias(c.qkv_bias),
                     .gguf = "attn_" + which,
                     .rotary_heads = rotates ? heads : 0});
  };
  const LinearId wq = projection("q", c.heads), wk = projection("k", c.kv_heads), wv = projection("v", c.kv_heads);
  const LinearId wo = b.linear({.module = "self_attn.o_proj",
                                .out = c.hidden_size,
                                .in = c.heads * c.head_dim,
                                .bias = bias(c.o_bias),
                                .gguf = "attn_output"});
  const VectorId q_norm = head_norm(b, "q"), k_norm = head_norm(b, "k"), sinks = attention_sinks(b);
  const bool rotates = here.rope != LayerAttention::kNoRotation;
  const auto table = static_cast<std::size_t>(here.rope);
  std::optional<std::size_t> query_table;
  if (here.query_rope != LayerAttention::kShared) query_table = static_cast<std::size_t>(here.query_rope);
  const auto attend = [&](TensorId q, TensorId k, TensorId v) {
    const TensorId y = stages::attention(b, {.q = q,
                                             .k = k,
                                             .v = v,
                                             .head_dim = c.head_dim,
                                             .window = here.window,
                                             .scale = c.score_scale(),
                                             .softcap = c.attention_softcap,
                                             .sinks = sinks});
    return residual ? stages::linear_add(b, {y, wo}, *residual) : stages::linear(b, y, {wo}).front();
  };
  if (c.joins_projections && rotates && c.qk_norm != QkNorm::all_heads) {
    const stages::SplitHeads heads =
        stages::joined_rotary(b, {.x = stages::joined_linear(b, x, {wq, wk, wv}, "self_attn.qkv_proj"),
                                  .heads = c.heads,
                                  .kv_heads = c.kv_heads,
                                  .head_dim = c.head_dim,
                                  .q_weight = q_norm,
                                  .k_weight = k_norm,
                                  .table = table,
                                  .query_table = query_table});
    const auto [q, k] = normed_after_rotation(b, {heads.q, heads.k});
    return attend(q, k, heads.v);
  }
  const auto qkv = stages::linear(b, x, {wq, wk, wv});
  TensorId q = qkv[0], k = qkv[1];
  if (c.qk_norm == QkNorm::all_heads) {
    q = stages::norm(b, {.x = q, .name = "self_attn.q_norm", .gguf = "attn_q_norm"});
    k = stages::norm(b, {.x = k, .name = "self_attn.k_norm", .gguf = "attn_k_norm"});
  }
  if (rotates) {
    const stages::Rotated rotated = stages::rotary(b, {.q = q,
                                                       .k = k,
                                                       .q_weight = q_norm,
                                                       .k_weight = k_norm,
                                                       .head_dim = c.head_dim,
                                                       .table = table,
                                                       .query_table = query_table});
    q = rotated.q;
    k = rotated.k;
  }
  const stages::Rotated normed = normed_after_rotation(b, {q, k});
  return attend(normed.q, normed.k, qkv[2]);
}

TensorId gated_mlp(LayerBuilder& b, TensorId x, std::optional<TensorId> residual) {
  return gated_mlp(b, GatedMlp{.x = x, .width = b.config().intermediate_size, .residual = residual});
}

TensorId gated_mlp(LayerBuilder& b, const GatedMlp& m) {
  const ModelConfig& c = b.config();
  const auto projection = [&](const char* which, std::int64_t out, std::int64_t in) {
    return b.linear({.module = fmt::format("{}.{}_proj", m.module, which),
                     .out = out,
                     .in = in,
                     .bias = bias(c.mlp_bias),
                     .gguf = fmt::format("ffn_{}{}", which, m.gguf_end)});
  };
  const std::int64_t hidden = b.width(m.x);
  const LinearId wg = projection("gate", m.width, hidden), wu = projection("up", m.width, hidden),
                 wd = projection("down", c.hidden_size, m.width);
  const auto down = [&](TensorId gated) {
    return m.residual ? stages::linear_add(b, {gated, wd}, *m.residual) : stages::linear(b, gated, {wd}).front();
  };
  if (c.joins_projections)
    return down(stages::packed_glu(b, {.x = stages::joined_linear(b, m.x, {wg, wu}, m.module + ".gate_up_proj")}));
  const auto both = stages::linear(b, m.x, {wg, wu});
  return down(stages::glu(b, both[0], both[1]));
}

bool is_sparse(const LayerBuilder& b) {
  const auto& experts = b.config().experts;
  return experts && experts->layers[static_cast<std::size_t>(b.index())];
}

TensorId sparse_mlp(LayerBuilder& b, TensorId x) {
  const ModelConfig& c = b.config();
  const ExpertsConfig& e = *c.experts;
  const LinearId router = b.linear({.module = e.names.module + ".gate",
                                    .out = e.count,
                                    .in = c.hidden_size,
                                    .gguf = "ffn_gate_inp",
                                    .kind = LinearKind::router,
                                    .parameter = "mlp.gate"});
  const auto matrices = [&](const std::string& part, Shape shape, const char* gguf) {
    return b.experts({.module = e.names.module + ".experts",
                      .part = part,
                      .count = e.count,
                      .out = shape[0],
                      .in = shape[1],
                      .gguf = gguf});
  };
  const Shape wide{e.intermediate_size, c.hidden_size}, back{c.hidden_size, e.intermediate_size};
  const ExpertsId gate = matrices(e.names.gate, wide, "ffn_gate_exps"), up = matrices(e.names.up, wide, "ffn_up_exps"),
                  down = matrices(e.names.down, back, "ffn_down_exps");
  const stages::Routing routing = stages::route(b, stages::linear(b, x, {router}).front());
  const TensorId rows = stages::dispatch(b, x, routing);
  const auto both = stages::grouped_linear(
      b, rows, {.parameter = "mlp.experts.gate_up_proj", .offsets = routing.offsets, .layers = {gate, up}});
  const TensorId inner = stages::glu(b, both[0], both[1]);
  const auto results = stages::grouped_linear(
      b, inner, {.parameter = "mlp.experts.down_proj", .offsets = routing.offsets, .layers = {down}});
  return stages::combine(b, results.front(), routing);
}

Layer pre_norm_layer(const ModelConfig& config, std::int64_t index) {
  LayerBuilder b(config, index);
  const TensorId x = b.input();
  const TensorId mid = self_attention(b, stages::norm(b, {.x = x, .name = "input_layernorm", .gguf = "attn_norm"}), x);
  const TensorId normed = stages::norm(b, {.x = mid, .name = "post_attention_layernorm", .gguf = "ffn_norm"});
  return b.finish(is_sparse(b) ? stages::add(b, mid, sparse_mlp(b, normed)) : gated_mlp(b, normed, mid));
}

Layer post_norm_layer(const ModelConfig& config, std::int64_t index) {
  LayerBuilder b(config, index);
  const TensorId x = b.input();
  const TensorId attended = self_attention(b, x);
  const TensorId mid = stages::add(
      b, x, stages::norm(b, {.x = attended, .name = "post_attention_layernorm", .gguf = "post_attention_norm"}));
  const TensorId fed = gated_mlp(b, mid);
  return b.finish(
      stages::add(b, mid, stages::norm(b, {.x = fed, .name = "post_feedforward_layernorm", .gguf = "post_ffw_norm"})));
}

}  // namespace qtrain::blocks
