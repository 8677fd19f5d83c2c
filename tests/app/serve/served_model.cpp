#include "tests/app/serve/served_model.h"

#include "core/formats/json.h"
#include "core/os/file.h"
#include "model/hf_folder.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

namespace fs = std::filesystem;

void write_folder(const fs::path& folder) {
  const fs::path chatml = fs::path(QTRAIN_SOURCE_DIR) / "tests/data/golden/chatml";
  fs::create_directories(folder);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    fs::copy_file(chatml / name, folder / name);
  const Json config{{"architectures", Json::array({"LlamaForCausalLM"})},
                    {"model_type", "llama"},
                    {"vocab_size", 480},  // the tokenizer has 400 of them
                    {"hidden_size", 48},
                    {"intermediate_size", 96},
                    {"num_hidden_layers", 2},
                    {"num_attention_heads", 4},
                    {"num_key_value_heads", 2},
                    {"max_position_embeddings", 65536},
                    {"initializer_range", 0.6},
                    {"eos_token_id", 2},
                    {"tie_word_embeddings", false},
                    {"torch_dtype", "float32"}};
  write_file(folder / "config.json", dump_json(config));
}

}  // namespace

void write_noise_model(const fs::path& folder, const fs::path& adapter) {
  write_folder(folder);
  Ctx ctx;
  TransformerOptions options{.config = load_model_config(folder), .base = Update::frozen};
  const std::vector<PlannedPass> passes{{Pass::decode, {.tokens = 1, .positions = 1, .targets = 1}}};
  PlannedModel base(ctx, options, {.passes = passes});
  base.runner.initialize_weights(ctx, 7);
  Param& head = *base.weights().find("lm_head.weight");
  std::fill_n(head.value.slice(2, 1).as<float>(), 48, 0.0f);  // the end token is never the most likely one
  save_model(ctx, base, {.folder = folder, .source = folder, .dtype = DType::f32});
  options.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"all-linear"}};
  PlannedModel adapted(ctx, options, {.passes = passes, .base = &base.runner});
  for (Param& p : adapted.adapter().all()) {
    p.spec.init = {Init::Kind::normal, 0.5};
  }
  adapted.adapter().initialize(ctx, 9);
  fs::create_directories(adapter);
  save_adapter(ctx, adapted, {.folder = adapter, .source = folder, .dtype = DType::f32});
}

}  // namespace qtrain::testing
