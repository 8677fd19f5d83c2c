#include <cmath>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/rope_config.h"

namespace qtrain {
namespace {

const Json* rope_table(const ConfigReader& r) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const Json* table = r.get(key); table && table->is_object()) return table;
  return nullptr;
}

// With `alpha`, "dynamic" means one larger base for all lengths.
RopeConfig read_hunyuan_rope(const ConfigReader& r, const ModelConfig& c) {
  const Json* table = rope_table(r);
  if (!table) return read_rope(r, c);
  const ConfigReader fields{*table, r.name + ": rotary parameters"};
  const double alpha = fields.number("alpha", 0);
  if (alpha == 0 || fields.text("rope_type", fields.text("type", "default")) != "dynamic") return read_rope(r, c);
  const auto size = static_cast<double>(c.head_dim);
  RopeConfig rope;
  rope.theta = fields.positive_number("rope_theta", r.positive_number("rope_theta", 10000)) *
               std::pow(fields.positive_number("alpha", 1), size / (size - 2));
  return rope;
}

void read_hunyuan(const ConfigReader& r, ModelConfig& c) {
  c.qk_norm = QkNorm::per_rotated_head;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.ropes = {read_hunyuan_rope(r, c)};
}

}  // namespace

extern const Family kHunyuanDense{
    .model_type = "hunyuan_v1_dense",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .read = read_hunyuan,
    .layer = blocks::pre_norm_layer,
    .defaults = R"({"rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})",
    .gguf = {.architecture = "hunyuan-dense",
             .inexpressible = [](const ModelConfig& c) { return c.qkv_bias ? "attention_bias" : nullptr; }}};

}  // namespace qtrain
