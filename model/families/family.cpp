#include "model/families/family.h"

namespace qtrain {

std::span<const Family* const> families() {
  static constexpr const Family* kAll[] = {&kLlama, &kMistral, &kQwen2, &kQwen3};
  return kAll;
}

void set_windows(const Json& json, ModelConfig& config, std::int64_t window, std::int64_t first) {
  config.windows.assign(static_cast<std::size_t>(config.layers), 0);
  const bool listed = json.contains("layer_types") && json["layer_types"].is_array();
  for (std::int64_t i = 0; i < config.layers; ++i) {
    bool sliding = i >= first;
    if (listed) sliding = json["layer_types"].at(static_cast<std::size_t>(i)) == "sliding_attention";
    if (sliding) config.windows[static_cast<std::size_t>(i)] = window;
  }
}

}  // namespace qtrain
