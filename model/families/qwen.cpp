#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {
namespace {

// The window applies only with use_sliding_window, and only from layer max_window_layers on.
void read_windows(const ConfigReader& r, ModelConfig& c) {
  if (!r.flag("use_sliding_window", false)) return;
  const double first = r.number("max_window_layers", 28);
  if (first < 0) r.refuse("\"max_window_layers\" must not be negative");
  set_windows(r, c, read_window(r, 4096), static_cast<std::int64_t>(first));
}

// GGUF files hold one window, which applies to all layers.
void assume_windows(Json& config) {
  const bool slides = !config.at("sliding_window").is_null();
  config["use_sliding_window"] = slides;
  if (slides) config["max_window_layers"] = 0;
}

}  // namespace

extern const Family kQwen2{.model_type = "qwen2",
                           .architecture = "Qwen2ForCausalLM",
                           .read =
                               [](const ConfigReader& r, ModelConfig& c) {
                                 c.qkv_bias = true;
                                 read_windows(r, c);
                               },
                           .layer = blocks::pre_norm_layer,
                           .defaults = R"({"num_key_value_heads": 32, "max_position_embeddings": 32768})",
                           .gguf = {.architecture = "qwen2", .assume = [](Json& config) {
                                      config.erase("attention_bias");
                                      assume_windows(config);
                                    }}};

extern const Family kQwen3{
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .read =
        [](const ConfigReader& r, ModelConfig& c) {
          c.qk_norm = QkNorm::per_head;
          c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
          read_windows(r, c);
        },
    .layer = blocks::pre_norm_layer,
    .defaults = R"({"num_key_value_heads": 32, "max_position_embeddings": 32768, "head_dim": 128})",
    .gguf = {.architecture = "qwen3", .assume = assume_windows, .inexpressible = [](const ModelConfig& c) {
               return c.qkv_bias ? "attention_bias" : nullptr;
             }}};

}  // namespace qtrain
