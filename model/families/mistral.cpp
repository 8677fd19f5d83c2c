#include "model/families/family.h"

namespace qtrain {

// transformers applies the window on every layer; `sliding_window: null` means none.
const Family kMistral{
    .model_type = "mistral", .architecture = "MistralForCausalLM", .read = [](const Json& j, ModelConfig& c) {
      const std::int64_t window = j.contains("sliding_window") ? (j["sliding_window"].is_null() ? 0 : j["sliding_window"].get<std::int64_t>()) : 4096;
      set_windows(j, c, window, 0);
    }};

}  // namespace qtrain
