#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {

extern const Family kLlama{
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .read =
        [](const ConfigReader& r, ModelConfig& c) {
          c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
          c.mlp_bias = r.flag("mlp_bias", false);
        },
    .layer = blocks::pre_norm_layer,
    .defaults = R"({"bos_token_id": 1, "eos_token_id": 2})",
    .gguf = {
        .architecture = "llama", .interleaves_rotary = true, .reads_rope_divisors = true, .assume = [](Json& config) {
          config.erase("sliding_window");
          config["mlp_bias"] = false;
        }}};

}  // namespace qtrain
