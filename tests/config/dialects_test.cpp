// Which files are configs, and dumps as configs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/support.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

// Files that are mistaken for a config, recognized by the keys that such files have.
TEST(ConfigErrors, OtherFilesSayWhatTheyAre) {
  for (const char* text :
       {R"({"zero_optimization": {"stage": 3}})", R"({"fp16": {"enabled": true}, "optimizer": {"type": "AdamW"}})"})
    EXPECT_THAT(complaint_about(text), HasSubstr("this is a DeepSpeed configuration"));
  // A file that names a model or rows, under any key, is a config.
  for (const char* key : {"output_dir", "model", "base_model_name", "dataset", "train_dataset", "dataset_path"})
    EXPECT_EQ(complaint_about(Json{{"peft_type", "LORA"}, {"task_type", "CAUSAL_LM"}, {key, "o"}}.dump()), "no error")
        << key;
  for (const char* other : {R"("base_models": [{"name": "a"}])", R"("dataset_mixture": ["a"])"})
    EXPECT_EQ(complaint_about(fmt::format(R"({{"peft_type": "LORA", "task_type": "CAUSAL_LM", {}}})", other)),
              "no error");
}

// LLaMA-Factory and axolotl change the model's config.json, which Trainer then uses.
TEST(Dialects, SayWhatTheLossOfRoutersIs) {
  const auto model = [](const char* text) { return parse_config(text, "c.yaml").value.model; };
  const ModelSection trl = model(R"({"model_name_or_path": "m", "router_aux_loss_coef": 0.02})");
  EXPECT_EQ(trl.router_aux_loss_coef, 0.02);
  EXPECT_EQ(trl.router_aux_loss_mode, RouterLossMode::trl);
  const ModelSection factory = model("stage: sft\nmodel_name_or_path: m\nmoe_aux_loss_coef: 0.01");
  EXPECT_EQ(factory.router_aux_loss_coef, 0.01);
  EXPECT_EQ(factory.router_aux_loss_mode, RouterLossMode::trainer);
  EXPECT_EQ(model("stage: sft\nmodel_name_or_path: m\nmoe_aux_loss_coef: 0").router_aux_loss_coef, std::nullopt)
      << "0 means that no coefficient is given";
  const std::string axolotl = "base_model: m\nsequence_len: 9\nsample_packing: true\n";
  const ModelSection changed =
      model((axolotl + "model_config:\n  output_router_logits: true\n  router_aux_loss_coef: 0.02").c_str());
  EXPECT_EQ(changed.output_router_logits, true);
  EXPECT_EQ(changed.router_aux_loss_coef, 0.02);
  EXPECT_EQ(changed.router_aux_loss_mode, RouterLossMode::trainer);
  EXPECT_THAT(complaint_about(R"({"base_model": "m", "sequence_len": 9, "sample_packing": true,
                                  "model_config": {"output_router_logits": true, "vocab_size": 9}})"),
              HasSubstr("change the model's config.json"));
}

// A dumped config can be read again and means the same.
TEST(ConfigDump, IsAConfigAgain) {
  const ResolvedConfig first =
      load_config(std::string(QTRAIN_SOURCE_DIR) + "/tests/config/cases/expert_manifest/config.json");
  Json flat = {{"dialect", "hf"}};
  const Json resolved = resolved_json(first);
  for (const auto& [key, entry] : resolved.at("values").items()) flat[key] = entry.at("value");
  const Json again = resolved_json(parse_config(flat.dump(), "again.json"));
  for (const auto& [key, entry] : resolved.at("values").items())
    EXPECT_EQ(again.at("values").at(key).at("value"), entry.at("value")) << key;
}

}  // namespace
}  // namespace qtrain
