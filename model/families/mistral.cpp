#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {

// transformers applies the window on every layer and ignores layer_types; `sliding_window: null` means none.
extern const Family kMistral{
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .read =
        [](const ConfigReader& r, ModelConfig& c) {
          const bool absent = !r.json.contains("sliding_window");
          const bool none = !absent && !r.get("sliding_window");
          const std::int64_t window = none ? 0 : r.positive("sliding_window", 4096);
          for (LayerAttention& layer : c.attention) layer.window = window;
        },
    .layer = blocks::pre_norm_layer,
    .gguf = {.architecture = "llama",
             .interleaves_rotary = true,
             .reads_rope_divisors = true,
             .holds = [](const GgufFile& file) { return file.integer_or("llama.attention.sliding_window", 0) > 0; }}};

}  // namespace qtrain
