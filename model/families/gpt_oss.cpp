#include <algorithm>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/rope_config.h"
#include "model/stages/add.h"
#include "model/stages/experts.h"
#include "model/stages/glu.h"
#include "model/stages/linear.h"
#include "model/stages/norm.h"

namespace qtrain {
namespace {

// A router and experts with biases; gate and up of an expert are one matrix with interleaved rows.
TensorId gpt_oss_mlp(LayerBuilder& b, TensorId x) {
  const ModelConfig& c = b.config();
  const ExpertsConfig& e = *c.experts;
  const LinearId router = b.linear({.module = "mlp.router",
                                    .out = e.count,
                                    .in = c.hidden_size,
                                    .bias = Bias::yes,
                                    .gguf = "ffn_gate_inp",
                                    .kind = LinearKind::router,
                                    .bias_init = {Init::Kind::normal, c.initializer_range}});
  const auto matrices = [&](const char* part, std::int64_t out, std::int64_t in, const char* gguf) {
    return b.experts({.module = "mlp.experts",
                      .part = part,
                      .count = e.count,
                      .out = out,
                      .in = in,
                      .gguf = gguf,
                      .files = ExpertFiles::joined,
                      .bias = Bias::yes});
  };
  const ExpertsId both = matrices("gate_up_proj", 2 * e.intermediate_size, c.hidden_size, "ffn_gate_up_exps");
  const ExpertsId down = matrices("down_proj", c.hidden_size, e.intermediate_size, "ffn_down_exps");
  const stages::Routing routing = stages::route(b, stages::linear(b, x, {router}).front());
  const auto grouped = [&](TensorId rows, const char* parameter, ExpertsId layer) {
    return stages::grouped_linear(b, rows, {.parameter = parameter, .offsets = routing.offsets, .layers = {layer}})
        .front();
  };
  const TensorId inner =
      stages::packed_glu(b, {.x = grouped(stages::dispatch(b, x, routing), "mlp.experts.gate_up_proj", both),
                             .order = ops::GluOrder::pairs,
                             .alpha = e.swiglu_alpha,
                             .limit = e.swiglu_limit});
  return stages::combine(b, grouped(inner, "mlp.experts.down_proj", down), routing);
}

Layer gpt_oss_layer(const ModelConfig& config, std::int64_t index) {
  LayerBuilder b(config, index);
  const TensorId x = b.input();
  const TensorId mid =
      blocks::self_attention(b, stages::norm(b, {.x = x, .name = "input_layernorm", .gguf = "attn_norm"}), x);
  const TensorId fed =
      gpt_oss_mlp(b, stages::norm(b, {.x = mid, .name = "post_attention_layernorm", .gguf = "post_attention_norm"}));
  return b.finish(stages::add(b, mid, fed));
}

// The first and then every other layer slides, unless layer_types says otherwise.
void read_gpt_oss_windows(const ConfigReader& r, ModelConfig& c) {
  set_windows(r, c, read_window(r, 128), 0);
  if (r.get("layer_types")) return;
  for (std::size_t l = 1; l < c.attention.size(); l += 2) c.attention[l].window = 0;
}

RopeConfig read_gpt_oss_rope(const ConfigReader& r, const ModelConfig& c) {
  RopeConfig rope = read_rope(r, c);
  if (r.get("rope_parameters") || r.get("rope_scaling")) return rope;
  rope.type = RopeConfig::Type::yarn;
  rope.factor = 32;
  rope.original_max_position = 4096;
  rope.truncate = false;
  return rope;
}

void read_gpt_oss(const ConfigReader& r, ModelConfig& c) {
  c.qkv_bias = c.o_bias = r.flag("attention_bias", true);
  c.attention_sinks = true;
  c.activation = ops::Activation::silu;  // the file's value is ignored
  c.ropes = {read_gpt_oss_rope(r, c)};
  read_gpt_oss_windows(r, c);
  set_experts(r, c,
              {.count = r.positive(r.get("num_local_experts") ? "num_local_experts" : "num_experts", 128),
               .per_token = r.positive("num_experts_per_tok", 4),
               .intermediate_size = c.intermediate_size,
               .swiglu_alpha = r.positive_number("swiglu_alpha", 1.702),
               .swiglu_limit = r.positive_number("swiglu_limit", 7),
               .named_apart = false,
               .layers = std::vector<bool>(static_cast<std::size_t>(c.layers), true)});
}

}  // namespace

extern const Family kGptOss{.model_type = "gpt_oss",
                            .architecture = "GptOssForCausalLM",
                            .read = read_gpt_oss,
                            .layer = gpt_oss_layer,
                            .defaults = R"({"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5,
                                            "max_position_embeddings": 131072, "rope_theta": 150000})",
                            .mxfp4_experts = true};

}  // namespace qtrain
