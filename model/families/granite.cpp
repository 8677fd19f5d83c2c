#include <cmath>

#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {
namespace {

// Llama with scales for embeddings, attention scores, branches added to the residual stream, and logits.
void read_granite(const ConfigReader& r, ModelConfig& c) {
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.embedding_scale = r.positive_number("embedding_multiplier", 1);
  c.attention_scale = r.positive_number("attention_multiplier", 1);
  c.residual_scale = r.positive_number("residual_multiplier", 1);
  c.logit_scale = 1 / r.positive_number("logits_scaling", 1);
}

constexpr GgufKey kGraniteKeys[] = {
    {"embedding_scale", "embedding_multiplier", GgufKey::Kind::number, config_value<&ModelConfig::embedding_scale>},
    {"attention.scale", "attention_multiplier", GgufKey::Kind::number, config_value<&ModelConfig::attention_scale>},
    {"residual_scale", "residual_multiplier", GgufKey::Kind::number, config_value<&ModelConfig::residual_scale>},
    {"logit_scale", "logits_scaling", GgufKey::Kind::number, [](const ModelConfig& c) { return 1 / c.logit_scale; }}};

// If the file has no scale, llama.cpp scales scores by the head size.
void assume_scale(Json& config) {
  if (!config.contains("attention_multiplier"))
    config["attention_multiplier"] = 1 / std::sqrt(config.at("head_dim").get<double>());
}

}  // namespace

extern const Family kGranite{.model_type = "granite",
                             .architecture = "GraniteForCausalLM",
                             .read = read_granite,
                             .layer = blocks::pre_norm_layer,
                             .defaults = R"({"bos_token_id": 1, "eos_token_id": 2})",
                             .gguf = {.architecture = "granite",
                                      .interleaves_rotary = true,
                                      .reads_rope_divisors = true,
                                      .keys = kGraniteKeys,
                                      .assume = assume_scale}};

}  // namespace qtrain
