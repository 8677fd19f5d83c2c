#include <algorithm>

#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {
namespace {

// no_rope_layers has a 0 for each layer without a rotary embedding, by default every fourth.
std::vector<bool> rotated_layers(const ConfigReader& r, const ModelConfig& c) {
  const std::int64_t interval = r.positive("no_rope_layer_interval", 4);
  const Json* given = r.get("no_rope_layers");
  if (given && (!given->is_array() || given->size() < c.attention.size()))
    r.refuse("\"no_rope_layers\" must be a list with \"num_hidden_layers\" entries");
  std::vector<bool> rotated;
  for (std::size_t l = 0; l < c.attention.size(); ++l) {
    if (given && !(*given)[l].is_number_integer()) r.refuse("\"no_rope_layers\" must hold 0 and 1");
    rotated.push_back(given ? (*given)[l] != 0 : (static_cast<std::int64_t>(l) + 1) % interval != 0);
  }
  return rotated;
}

void read_smollm3(const ConfigReader& r, ModelConfig& c) {
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  const std::vector<bool> rotated = rotated_layers(r, c);
  const std::int64_t window = r.flag("use_sliding_window", false) ? read_window(r, 0) : 0;
  const auto slides = sliding_layer_types(r, c);
  // In transformers, attention and mask would disagree about the window.
  if (slides && window == 0 && std::ranges::find(*slides, true) != slides->end())
    r.refuse("\"layer_types\" has sliding_attention without \"use_sliding_window\" and \"sliding_window\"");
  for (std::size_t l = 0; l < c.attention.size(); ++l) {
    c.attention[l].rope = rotated[l] ? 0 : LayerAttention::kNoRotation;
    c.attention[l].window = (slides ? (*slides)[l] : !rotated[l]) ? window : 0;
  }
}

// The key whose value GGUF files cannot express, or null: their readers skip the rotation in every fourth layer.
const char* what_smollm3_files_lack(const ModelConfig& c) {
  if (c.qkv_bias) return "attention_bias";
  for (std::size_t l = 0; l < c.attention.size(); ++l)
    if ((c.attention[l].rope == LayerAttention::kNoRotation) != (l % 4 == 3)) return "no_rope_layers";
  return nullptr;
}

}  // namespace

extern const Family kSmolLm3{
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .read = read_smollm3,
    .layer = blocks::pre_norm_layer,
    .defaults = R"({"num_key_value_heads": 4, "max_position_embeddings": 32768,
                                             "rope_theta": 2e6, "tie_word_embeddings": true, "bos_token_id": 128000,
                                             "eos_token_id": 128001, "pad_token_id": 128004, "sliding_window": null})",
    .gguf = {.architecture = "smollm3", .interleaves_rotary = true, .inexpressible = what_smollm3_files_lack}};

}  // namespace qtrain
