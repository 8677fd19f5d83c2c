#include "model/families/family.h"

namespace qtrain {

const Family kLlama{
    .model_type = "llama", .architecture = "LlamaForCausalLM", .read = [](const ConfigReader& r, ModelConfig& c) {
      c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
      c.mlp_bias = r.flag("mlp_bias", false);
    }};

}  // namespace qtrain
