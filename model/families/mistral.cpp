#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {

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

}  // namespace qtrain
