#include <algorithm>
#include <limits>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/rope_config.h"

namespace qtrain {
namespace {

// The layers of OLMo 2 with norms of each head. If the model has windows, layers without one do not rotate: their
// rotary embedding turns by no angle, so that queries and keys are only normalized.
void read_exaone4(const ConfigReader& r, ModelConfig& c) {
  c.qk_norm = QkNorm::per_head;
  RopeConfig still;
  still.type = RopeConfig::Type::linear;
  still.factor = std::numeric_limits<double>::infinity();
  c.ropes = {read_rope(r, c), still};
  const std::int64_t full = r.get("layer_types") ? 1 : r.positive("sliding_window_pattern", 4);
  const std::vector<bool> slides = set_windows_but_every(full, r, c);
  const bool has_window = read_window(r, kUsualWindow) > 0;
  for (std::size_t l = 0; l < slides.size(); ++l) c.attention[l].rope = has_window && !slides[l] ? 1 : 0;
}

// llama.cpp knows windows from the number of layers: those of the 32B model.
constexpr std::int64_t kLayersWithWindows = 64;

const char* what_exaone4_files_lack(const ModelConfig& c) {
  const bool has_window = std::ranges::any_of(c.attention, [](const LayerAttention& a) { return a.window > 0; });
  const bool turns = std::ranges::all_of(c.attention, [](const LayerAttention& a) { return a.rope == 0; });
  if (has_window != (c.layers == kLayersWithWindows)) return "sliding_window";
  return has_window || turns ? nullptr : "layer_types";
}

// A model without windows has no layers that slide.
void assume_exaone4(Json& config) {
  config.erase("attention_bias");
  if (!config.at("sliding_window").is_null()) return;
  for (Json& type : config["layer_types"]) type = "full_attention";
  config["sliding_window_pattern"] = nullptr;
}

}  // namespace

extern const Family kExaone4{.model_type = "exaone4",
                             .architecture = "Exaone4ForCausalLM",
                             .read = read_exaone4,
                             .layer = blocks::post_norm_layer,
                             .defaults = R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "bos_token_id": 0,
                                             "eos_token_id": 2})",
                             .gguf = {.architecture = "exaone4",
                                      .reads_rope_divisors = true,
                                      .full_attention_every = 4,
                                      .assume = assume_exaone4,
                                      .inexpressible = what_exaone4_files_lack}};

}  // namespace qtrain
