#include "model/families/family.h"

namespace qtrain {

std::span<const Family* const> families() {
  static constexpr const Family* kAll[] = {&kLlama, &kMistral, &kQwen2, &kQwen3};
  return kAll;
}

void set_windows(const ConfigReader& fields, ModelConfig& config, std::int64_t window, std::int64_t first) {
  for (std::int64_t i = first; i < config.layers; ++i) config.windows[static_cast<std::size_t>(i)] = window;
  const Json* types = fields.get("layer_types");
  if (!types) return;
  if (!types->is_array() || types->size() != config.windows.size())
    fields.refuse("\"layer_types\" must be a list with one entry for each of \"num_hidden_layers\"");
  for (std::size_t i = 0; i < config.windows.size(); ++i) {
    const Json& entry = (*types)[i];
    const std::string type = entry.is_string() ? entry.get<std::string>() : entry.dump();
    if (type != "sliding_attention" && type != "full_attention")
      fields.refuse(fmt::format("\"layer_types\" entry {} is not supported", type),
                    "supported: full_attention, sliding_attention");
    config.windows[i] = type == "sliding_attention" ? window : 0;
  }
}

}  // namespace qtrain
