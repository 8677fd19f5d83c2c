#include "model/families/blocks.h"

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
                                  .table = table});
    return attend(heads.q, heads.k, heads.v);
  }
  const auto qkv = stages::linear(b, x, {wq, wk, wv});
  TensorId q = qkv[0], k = qkv[1];
  if (c.qk_norm == QkNorm::all_heads) {
    q = stages::norm(b, {.x = q, .name = "self_attn.q_norm", .gguf = "attn_q_norm"});
    k = stages::norm(b, {.x = k, .name = "self_attn.k_norm", .gguf = "attn_k_norm"});
  }
  if (rotates) {
    const stages::Rotated rotated = stages::rotary(
        b, {.q = q, .k = k, .q_weight = q_norm, .k_weight = k_norm, .head_dim = c.head_dim, .table = table});
    q = rotated.q;
    k = rotated.k;
  }
  return attend(q, k, qkv[2]);
}

TensorId gated_mlp(LayerBuilder& b, TensorId x, std::optional<TensorId> residual) {
  const ModelConfig& c = b.config();
  const std::int64_t hidden = b.width(x), inner = c.intermediate_size;
  const LinearId wg =
      b.linear({.module = "mlp.gate_proj", .out = inner, .in = hidden, .bias = bias(c.mlp_bias), .gguf = "ffn_gate"});
  const LinearId wu =
      b.linear({.module = "mlp.up_proj", .out = inner, .in = hidden, .bias = bias(c.mlp_bias), .gguf = "ffn_up"});
  const LinearId wd = b.linear(
      {.module = "mlp.down_proj", .out = c.hidden_size, .in = inner, .bias = bias(c.mlp_bias), .gguf = "ffn_down"});
  const auto down = [&](TensorId gated) {
    return residual ? stages::linear_add(b, {gated, wd}, *residual) : stages::linear(b, gated, {wd}).front();
  };
  if (c.joins_projections)
    return down(stages::packed_glu(b, {.x = stages::joined_linear(b, x, {wg, wu}, "mlp.gate_up_proj")}));
  const auto both = stages::linear(b, x, {wg, wu});
  return down(stages::glu(b, both[0], both[1]));
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
  const bool sparse = config.experts && config.experts->layers[static_cast<std::size_t>(index)];
  return b.finish(sparse ? stages::add(b, mid, sparse_mlp(b, normed)) : gated_mlp(b, normed, mid));
}

}  // namespace qtrain::blocks
