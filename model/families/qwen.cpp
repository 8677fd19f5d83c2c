#include "model/families/family.h"

namespace qtrain {
namespace {

// The window counts only with use_sliding_window, and only from layer max_window_layers on.
void read_windows(const Json& j, ModelConfig& c) {
  if (!j.value("use_sliding_window", false) || !j.contains("sliding_window") || j["sliding_window"].is_null()) {
    return set_windows(Json::object(), c, 0, 0);
  }
  set_windows(j, c, j["sliding_window"].get<std::int64_t>(), j.value("max_window_layers", std::int64_t{28}));
}

}  // namespace

const Family kQwen2{.model_type = "qwen2", .architecture = "Qwen2ForCausalLM", .read = [](const Json& j, ModelConfig& c) {
  c.qkv_bias = true;
  read_windows(j, c);
}};

const Family kQwen3{.model_type = "qwen3", .architecture = "Qwen3ForCausalLM", .read = [](const Json& j, ModelConfig& c) {
  c.qk_norm = true;
  c.qkv_bias = c.o_bias = j.value("attention_bias", false);
  read_windows(j, c);
}};

}  // namespace qtrain
