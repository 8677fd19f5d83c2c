#include "model/hf_folder.h"

#include <gmock/gmock.h>

#include "model/model_config.h"
#include "tests/core/temp_folder.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<PlannedModel> model_of(Ctx& ctx, const ModelConfig& config, std::optional<LoraConfig> lora = {}) {
  TransformerOptions o{.config = config, .lora = std::move(lora)};
  if (o.lora) o.base = Update::frozen;
  return planned_model(ctx, std::move(o), {.tokens = 4, .positions = 4, .targets = 3});
}

ModelConfig config_of(const Json& more) {
  return parse_model_config(small_config(more), "config.json");
}

NamedValues contents(ParamStore& store) {
  NamedValues out;
  for (const Param& p : store.all()) out.emplace(p.spec.name, values_of(p.value));
  return out;
}

class HfFolder : public ::testing::Test {
 protected:
  std::unique_ptr<PlannedModel> initialized(const ModelConfig& config, std::optional<LoraConfig> lora = {}) {
    auto model = model_of(ctx_, config, std::move(lora));
    model->weights().initialize(ctx_, 1);
    model->adapter().initialize(ctx_, 2);
    return model;
  }
  std::unique_ptr<PlannedModel> loaded(const fs::path& folder) {
    auto model = model_of(ctx_, load_model_config(folder));
    EXPECT_THAT(load_parameters(ctx_, model->weights(), folder), IsEmpty());
    return model;
  }
  void save(Transformer& model, const fs::path& to, DType dtype = DType::f32) {
    save_model(ctx_, model, {.folder = to, .source = folder_ / "source", .dtype = dtype});
  }
  /// Writes the tensors of a saved model again, after `edit` changed them.
  template <class Edit>
  void rewrite(const fs::path& folder, Edit&& edit) {
    const SafetensorsReader reader(folder);
    NamedTensors tensors;
    for (const auto& [name, tensor] : reader.tensors()) tensors.emplace_back(name, tensor);
    edit(tensors);
    write_safetensors(folder / "new.safetensors", tensors);
    fs::rename(folder / "new.safetensors", folder / "model.safetensors");
  }

  TempFolder folder_;
  Ctx ctx_{{}, MatmulPrecision::storage, 1};
};

TEST_F(HfFolder, SavedModelsComeBackBitForBit) {
  for (const Json& more :
       {Json{{"tie_word_embeddings", true}}, Json{{"model_type", "qwen3"}, {"attention_bias", true}}}) {
    const auto model = initialized(config_of(more));
    save(*model, folder_ / "out");
    EXPECT_EQ(contents(loaded(folder_ / "out")->weights()), contents(model->weights()));
    EXPECT_EQ(SafetensorsReader(folder_ / "out").contains("lm_head.weight"), !more.contains("tie_word_embeddings"));
  }
}

TEST_F(HfFolder, NarrowTypesRoundOnce) {
  const auto model = initialized(config_of({}));
  for (const DType d : {DType::bf16, DType::f16}) {
    save(*model, folder_ / "out", d);
    EXPECT_EQ(load_model_config(folder_ / "out").dtype, d);
    EXPECT_EQ(SafetensorsReader(folder_ / "out").at("model.norm.weight").dtype, d);
    const NamedValues back = contents(loaded(folder_ / "out")->weights());
    for (const auto& [name, values] : contents(model->weights()))
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto f = static_cast<float>(values[i]);
        const float rounded = d == DType::bf16 ? static_cast<float>(Bf16(f)) : static_cast<float>(F16(f));
        ASSERT_EQ(back.at(name)[i], static_cast<double>(rounded)) << name;
      }
  }
}

TEST_F(HfFolder, ConfigKeepsTheSourcesFieldsAndSaysTheSavedType) {
  Json source = small_config({{"torch_dtype", "float16"}, {"my_field", {1, 2}}, {"rope_scaling", nullptr}});
  const auto model = initialized(parse_model_config(source, "c"));
  save(*model, folder_ / "out", DType::bf16);
  Json written = read_json(folder_ / "out" / "config.json");
  EXPECT_EQ(written["dtype"], "bfloat16");
  EXPECT_FALSE(written.contains("torch_dtype"));
  EXPECT_EQ(written["architectures"], Json::array({"LlamaForCausalLM"}));
  for (const char* key : {"dtype", "architectures"}) written.erase(key);
  source.erase("torch_dtype");
  EXPECT_EQ(written, source);
}

TEST_F(HfFolder, ShardsAreReadAsOneModel) {
  const auto model = initialized(config_of({}));
  NamedTensors tensors;
  for (const Param& p : model->weights().all()) tensors.emplace_back(p.spec.name, p.value);
  fs::create_directory(folder_ / "out");
  write_sharded(folder_ / "out", tensors, 2000);
  ASSERT_TRUE(exists(folder_ / "out" / "model.safetensors.index.json"));
  const auto back = model_of(ctx_, config_of({}));
  EXPECT_THAT(load_parameters(ctx_, back->weights(), folder_ / "out"), IsEmpty());
  EXPECT_EQ(contents(back->weights()), contents(model->weights()));
}

TEST_F(HfFolder, ModelsWithoutTheirHeadHaveNoPrefix) {
  const auto model = initialized(config_of({{"tie_word_embeddings", true}}));
  save(*model, folder_ / "out");
  rewrite(folder_ / "out", [](NamedTensors& tensors) {
    for (auto& [name, tensor] : tensors) name = name.substr(std::string("model.").size());
  });
  EXPECT_EQ(contents(loaded(folder_ / "out")->weights()), contents(model->weights()));
}

TEST_F(HfFolder, AMissingTensorIsNamed) {
  const auto model = initialized(config_of({}));
  save(*model, folder_ / "out");
  const std::string gone = "model.layers.1.mlp.up_proj.weight";
  rewrite(folder_ / "out", [&](NamedTensors& t) { std::erase_if(t, [&](const auto& n) { return n.first == gone; }); });
  const Error e = error_of([&] { loaded(folder_ / "out"); });
  EXPECT_EQ(e.kind(), ErrorKind::input);
  EXPECT_THAT(e.what(), ::testing::AllOf(HasSubstr(gone), HasSubstr((folder_ / "out").string())));
}

TEST_F(HfFolder, AnotherShapeIsRefusedWithBoth) {
  const auto model = initialized(config_of({}));
  save(*model, folder_ / "out");
  rewrite(folder_ / "out", [](NamedTensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name == "model.embed_tokens.weight") tensor = tensor.reshaped({12, 29});
  });
  const Error e = error_of([&] { loaded(folder_ / "out"); });
  EXPECT_EQ(e.kind(), ErrorKind::input);
  EXPECT_THAT(e.what(),
              ::testing::AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("[12, 29]"), HasSubstr("[29, 12]")));
}

TEST_F(HfFolder, WeightsThatAreNoFloatsAreRefused) {
  const auto model = initialized(config_of({}));
  save(*model, folder_ / "out");
  rewrite(folder_ / "out", [](NamedTensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name == "model.norm.weight") tensor.dtype = DType::i32;
  });
  EXPECT_THAT(error_of([&] { loaded(folder_ / "out"); }).what(),
              ::testing::AllOf(HasSubstr("model.norm.weight"), HasSubstr("int32")));
}

TEST_F(HfFolder, ReturnsTensorsThatTheModelDoesNotHave) {
  const auto model = initialized(config_of({{"tie_word_embeddings", true}}));
  save(*model, folder_ / "out");
  const std::vector<float> extra(4, 1.0f);
  const ConstTensor tensor = view_of(std::span<const float>(extra), {4});
  rewrite(folder_ / "out", [&](NamedTensors& t) {
    for (const char* name : {"lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq", "model.vision.weight"})
      t.emplace_back(name, tensor);
  });
  const auto back = model_of(ctx_, load_model_config(folder_ / "out"));
  EXPECT_THAT(load_parameters(ctx_, back->weights(), folder_ / "out"), ::testing::ElementsAre("model.vision.weight"));
}

TEST_F(HfFolder, AdaptersComeBackBitForBit) {
  const LoraConfig lora{.r = 2, .alpha = 6, .targets = {"q_proj", "down_proj"}, .base_model = "base"};
  const auto model = initialized(config_of({}), lora);
  for (Param& p : model->adapter().all()) p.value.as<float>()[0] = 0.75f;
  save_adapter(ctx_, *model, {.folder = folder_ / "out", .source = folder_ / "source", .dtype = DType::f32});
  const auto back = model_of(ctx_, config_of({}), load_lora_config(folder_ / "out"));
  EXPECT_THAT(load_parameters(ctx_, back->adapter(), folder_ / "out"), IsEmpty());
  EXPECT_EQ(contents(back->adapter()), contents(model->adapter()));
  EXPECT_EQ(back->adapter().all().size(), 8u);
  EXPECT_NE(back->adapter().find("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"), nullptr);
}

TEST_F(HfFolder, CompanionsAreCopiedUnchanged) {
  fs::create_directory(folder_ / "source");
  const std::string odd("{\"\xC3\xA9\": 1}\r\n\0x", 14);
  write_file(folder_ / "source" / "tokenizer.json", odd);
  write_file(folder_ / "source" / "generation_config.json", "{\"top_k\": 20}");
  write_file(folder_ / "source" / "notes.txt", "mine");
  const auto model = initialized(config_of({}));
  save(*model, folder_ / "out");
  EXPECT_EQ(read_text(folder_ / "out" / "generation_config.json"), "{\"top_k\": 20}");
  EXPECT_FALSE(exists(folder_ / "out" / "tokenizer.json")) << "it may be that of another folder";
  fs::create_directory(folder_ / "copy");
  copy_companions(folder_ / "source", folder_ / "copy");
  EXPECT_EQ(read_text(folder_ / "copy" / "tokenizer.json"), odd);
  EXPECT_EQ(read_text(folder_ / "copy" / "generation_config.json"), "{\"top_k\": 20}");
  EXPECT_FALSE(exists(folder_ / "copy" / "notes.txt"));
  EXPECT_NO_THROW(copy_companions(folder_ / "copy", folder_ / "copy")) << "onto itself";
}

}  // namespace
}  // namespace qtrain::testing
