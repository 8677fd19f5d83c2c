#include "model/families/family.h"

namespace qtrain {

const Family kLlama{.model_type = "llama", .architecture = "LlamaForCausalLM", .read = [](const Json& j, ModelConfig& c) {
  c.qkv_bias = c.o_bias = j.value("attention_bias", false);
  c.mlp_bias = j.value("mlp_bias", false);
}};

}  // namespace qtrain
