#include <algorithm>

#include "model/families/family.h"

namespace qtrain {

// transformers applies the window on every layer and ignores layer_types; `sliding_window: null` means none.
const Family kMistral{
    .model_type = "mistral", .architecture = "MistralForCausalLM", .read = [](const ConfigReader& r, ModelConfig& c) {
      const bool absent = !r.json.contains("sliding_window");
      const std::int64_t window = absent ? 4096 : r.get("sliding_window") ? r.positive("sliding_window") : 0;
      std::fill(c.windows.begin(), c.windows.end(), window);
    }};

}  // namespace qtrain
