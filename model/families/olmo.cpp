#include <algorithm>

#include "model/families/blocks.h"
#include "model/families/family.h"
#include "model/rope_config.h"

namespace qtrain {
namespace {

void read_olmo(const ConfigReader& r, ModelConfig& c) {
  c.qk_norm = QkNorm::all_heads;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
}

constexpr double kOlmo3Base = 500000;

// Layers with a window rotate without scaling. With a base outside of the tables, version 5 of transformers would
// rotate these layers by its default.
std::vector<RopeConfig> read_olmo3_ropes(const ConfigReader& r, const ModelConfig& c) {
  const Json* tables = r.get("rope_parameters");
  if (!tables && r.number("rope_theta", kOlmo3Base) != kOlmo3Base)
    r.refuse("\"rope_theta\" other than 500000 means something else to version 5 of transformers than to version 4",
             "give it in \"rope_parameters\", for full_attention and for sliding_attention");
  return {read_rope_of_kind(r, c, {"full_attention", kOlmo3Base}),
          read_rope_of_kind(r, c, {"sliding_attention", kOlmo3Base})};
}

void read_olmo3(const ConfigReader& r, ModelConfig& c) {
  read_olmo(r, c);
  c.ropes = read_olmo3_ropes(r, c);
  const std::vector<bool> slides = set_windows_but_every(4, r, c);
  for (std::size_t l = 0; l < slides.size(); ++l) c.attention[l].rope = slides[l] ? 1 : 0;
}

const char* what_olmo2_files_lack(const ModelConfig& c) {
  if (c.qkv_bias) return "attention_bias";
  if (c.tie_word_embeddings) return "tie_word_embeddings: true";
  return c.heads * c.head_dim == c.hidden_size ? nullptr : "head_dim";
}

// llama.cpp reads OLMo 3 as OLMo 2 with a window on all layers but every fourth, which rotate without scaling.
const char* what_olmo3_files_lack(const ModelConfig& c) {
  const bool has_window = std::ranges::any_of(c.attention, [](const LayerAttention& a) { return a.window > 0; });
  if (!has_window) return "sliding_window: null";
  const RopeConfig &full = c.ropes[0], &sliding = c.ropes[1];
  if (sliding.type != RopeConfig::Type::standard || sliding.theta != full.theta)
    return "rope_parameters: sliding_attention";
  return what_olmo2_files_lack(c);
}

// The rotary parameters as version 5 writes them if those of version 4 would be ambiguous.
void assume_olmo3(Json& config) {
  if (config.at("rope_theta") == kOlmo3Base) return;
  Json full = config.at("rope_scaling").is_null() ? Json{{"rope_type", "default"}} : config.at("rope_scaling");
  full["rope_theta"] = config.at("rope_theta");
  config["rope_parameters"] = {
      {"full_attention", full},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", config.at("rope_theta")}}}};
  config.erase("rope_theta");
  config.erase("rope_scaling");
}

}  // namespace

extern const Family kOlmo2{.model_type = "olmo2",
                           .architecture = "Olmo2ForCausalLM",
                           .read = read_olmo,
                           .layer = blocks::post_norm_layer,
                           .defaults = R"({"rms_norm_eps": 1e-5, "pad_token_id": 1, "eos_token_id": 50279})",
                           .gguf = {.architecture = "olmo2", .inexpressible = what_olmo2_files_lack}};

extern const Family kOlmo3{
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .read = read_olmo3,
    .layer = blocks::post_norm_layer,
    .defaults = R"({"rms_norm_eps": 1e-5, "pad_token_id": 1, "eos_token_id": 50279})",
    .gguf = {.architecture = "olmo2",
             .full_attention_every = 4,
             .assume = assume_olmo3,
             .inexpressible = what_olmo3_files_lack,
             .holds = [](const GgufFile& file) { return file.integer_or("olmo2.attention.sliding_window", 0) > 0; }}};

}  // namespace qtrain
