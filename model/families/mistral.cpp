#include <fmt/format.h>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/rope_config.h"

namespace qtrain {
namespace {

// All layers have the window, unless layer_types says otherwise.
void read_ministral(const ConfigReader& r, ModelConfig& c) {
  set_windows(r, c, read_window(r, kUsualWindow), 0);
}

// What transformers uses without rotary parameters.
const Json& ministral3_rope() {
  static const Json kRope{{"rope_type", "yarn"}, {"rope_theta", 1e6},   {"factor", 16},
                          {"beta_fast", 32},     {"beta_slow", 1},      {"original_max_position_embeddings", 16384},
                          {"mscale", 1},         {"mscale_all_dim", 1}, {"llama_4_scaling_beta", 0.1}};
  return kRope;
}

// Mistral with queries that grow beyond the length of pre-training: a rotary embedding of their own.
void read_ministral3(const ConfigReader& r, ModelConfig& c) {
  for (LayerAttention& layer : c.attention) layer.window = read_window(r, 0);
  const Json* given = r.get("rope_parameters");
  if (r.get("rope_scaling")) r.refuse("\"rope_scaling\" is not supported in this family", "use \"rope_parameters\"");
  if (given && !given->is_object())
    r.refuse(fmt::format("\"rope_parameters\" must be an object, not {}", given->dump()));
  const Json& table = given ? *given : ministral3_rope();
  const std::string place = r.name + ": rope_parameters";
  const ConfigReader fields{table, place};
  if (!fields.get("llama_4_scaling_beta")) fields.refuse("\"llama_4_scaling_beta\" is missing");
  if (!fields.get("original_max_position_embeddings")) fields.refuse("\"original_max_position_embeddings\" is missing");
  c.ropes = {read_rope_table(fields, c, 10000)};
  RopeConfig queries = c.ropes.front();
  queries.original_max_position = fields.positive_number("original_max_position_embeddings", 1);
  queries.length_scale = fields.number("llama_4_scaling_beta", 0);
  if (queries.length_scale == 0) return;
  c.ropes.push_back(queries);
  for (LayerAttention& layer : c.attention) layer.query_rope = 1;
}

}  // namespace

// transformers applies the window on every layer and ignores layer_types; `sliding_window: null` means none.
extern const Family kMistral{
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .read =
        [](const ConfigReader& r, ModelConfig& c) {
          for (LayerAttention& layer : c.attention) layer.window = read_window(r, 4096);
        },
    .layer = blocks::pre_norm_layer,
    .defaults = R"({"num_key_value_heads": 8, "max_position_embeddings": 131072, "bos_token_id": 1,
                    "eos_token_id": 2})",
    .gguf = {.architecture = "llama",
             .interleaves_rotary = true,
             .reads_rope_divisors = true,
             .holds = [](const GgufFile& file) {
               return file.integer_or("llama.attention.sliding_window", 0) > 0 &&
                      file.integer_or("llama.expert_count", 0) == 0;
             }}};

extern const Family kMinistral{
    .model_type = "ministral",
    .architecture = "MinistralForCausalLM",
    .read = read_ministral,
    .layer = blocks::pre_norm_layer,
    .defaults = R"({"num_key_value_heads": 8, "max_position_embeddings": 131072, "bos_token_id": 1,
                    "eos_token_id": 2})"};

extern const Family kMinistral3{
    .model_type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .read = read_ministral3,
    .layer = blocks::pre_norm_layer,
    .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
                    "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 11})"};

}  // namespace qtrain
