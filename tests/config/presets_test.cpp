// Presets: which values they set, which they leave alone, and which contradict them.
#include "config/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/dialect_table.h"
#include "config/fields.h"
#include "tests/config/support.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::string origin_in(std::string_view text, const std::string& key) {
  return parse_config(text, "c.json").origin.at(key);
}

TEST(Presets, AreTheWordsOfTheirKeyAndHaveValuesOfTheirKeys) {
  std::vector<std::string> names;
  for (const auto& [name, preset] : dialect_table("presets").data.items()) {
    names.push_back(name);
    std::vector<Json> sets{preset.at("fixed")};
    for (const Json& row : preset.at("then")) sets.push_back(row.at("set"));
    for (const Json& values : sets)
      for (const auto& [key, value] : values.items()) {
        Config config;
        ASSERT_NE(find_field(key), nullptr) << name << ": " << key;
        EXPECT_EQ(assign_field(config, key, value).error, "") << name << ": " << key;
      }
  }
  EXPECT_EQ(find_field("preset")->words, names);
}

TEST(Presets, SetWhatTheConfigDoesNotName) {
  const Config lora = value_of(R"({"preset": "lora"})");
  EXPECT_TRUE(lora.lora.use_peft);
  EXPECT_EQ(lora.lora.lora_r, 16);
  EXPECT_EQ(lora.lora.lora_alpha, 32);
  EXPECT_EQ(lora.lora.lora_target_modules, std::vector<std::string>{"all-linear"});
  EXPECT_EQ(lora.training.learning_rate, 2e-4);
  EXPECT_TRUE(lora.data.assistant_only_loss);
  EXPECT_FALSE(lora.quant.load_in_4bit);
  EXPECT_TRUE(value_of(R"({"preset": "qlora"})").quant.load_in_4bit);
  EXPECT_FALSE(value_of(R"({"preset": "full"})").lora.use_peft);
  EXPECT_TRUE(value_of(R"({"preset": "pretrain"})").data.packing);
  const Config named = value_of(R"({"preset": "lora", "lr": 1e-3, "r": 8})");
  EXPECT_EQ(named.training.learning_rate, 1e-3);
  EXPECT_EQ(named.lora.lora_r, 8);
  EXPECT_EQ(named.lora.lora_alpha, 32);  // not LoraConfig's 8, which the name r would mean
}

TEST(Presets, AreTheOriginOfTheirValues) {
  EXPECT_EQ(origin_in(R"({"preset": "lora"})", "learning_rate"), "default (preset lora)");
  EXPECT_EQ(origin_in(R"({"preset": "lora"})", "seed"), "default (hf)");
  EXPECT_EQ(origin_in(R"({"preset": "lora"})", "preset"), "c.json:1");
  EXPECT_EQ(origin_in("{\"preset\": \"lora\",\n\"lr\": 1e-3}", "learning_rate"), "c.json:2 (lr)");
  EXPECT_FALSE(parse_config(R"({"preset": "lora"})", "c.json").given("use_peft"));
}

TEST(Presets, AreLeftOutByDefault) {
  const ResolvedConfig plain = parse_config("{}", "c.json");
  EXPECT_FALSE(plain.value.training.preset);
  EXPECT_EQ(plain.value.training.learning_rate, 2e-5);
  for (const auto& [key, origin] : plain.origin) EXPECT_FALSE(plain.of_preset(key)) << key;
}

TEST(Presets, FollowTheRestOfTheConfig) {
  EXPECT_EQ(value_of(R"({"preset": "pretrain"})").training.learning_rate, 1e-4);
  EXPECT_EQ(value_of(R"({"preset": "pretrain", "random_init": true})").training.learning_rate, 1e-3);
  const Config marked = value_of(R"({"preset": "lora", "response_template": "answer:"})");
  EXPECT_FALSE(marked.data.assistant_only_loss);
}

TEST(Presets, WinOverWhatADialectDerives) {
  // axolotl's rows follow bf16, its default: they would load the weights in bfloat16.
  const Config full = value_of(R"({"base_model": "m", "sample_packing": false, "bf16": true, "preset": "full"})");
  EXPECT_EQ(full.model.dtype, "float32");
  EXPECT_EQ(value_of(R"({"base_model": "m", "sample_packing": false, "bf16": true})").model.dtype, "bfloat16");
}

TEST(Presets, RefuseWhatContradictsThem) {
  EXPECT_THAT(complaint_about("{\"preset\": \"qlora\",\n\"use_peft\": false}"),
              AllOf(HasSubstr("c.json:2"), HasSubstr("use_peft is false, but with preset qlora it is true"),
                    HasSubstr("remove use_peft, or set preset to full")));
  EXPECT_THAT(complaint_about("{\"preset\": \"qlora\",\n\n\"load_in_4bit\": false}"),
              AllOf(HasSubstr("c.json:3"), HasSubstr("set preset to lora")));
  EXPECT_THAT(complaint_about("{\"preset\": \"full\",\n\"use_lora\": true}"),
              AllOf(HasSubstr("c.json:2 (use_lora)"), HasSubstr("set preset to lora")));
  EXPECT_THAT(complaint_about(R"({"preset": "full", "adapter_name_or_path": "a"})"),
              HasSubstr("adapter_name_or_path is \"a\", but with preset full it is null"));
  EXPECT_THAT(complaint_about(R"({"preset": "lora", "random_init": true})"), HasSubstr("random_init"));
  EXPECT_EQ(complaint_about(R"({"preset": "lora", "load_in_4bit": true, "use_peft": true})"), "no error");
  EXPECT_THAT(complaint_about(R"({"preset": "lora", "use_peft": "yes"})"), Not(HasSubstr("with preset")));
}

TEST(Presets, OfTheCommandLineReplaceThoseOfTheFile) {
  EXPECT_THAT(complaint_about("{\"use_peft\": true}", {{"preset", "full"}}), HasSubstr("c.json:1"));
  const Config full = value_of(R"({"preset": "lora"})", {{"preset", "full"}});
  EXPECT_FALSE(full.lora.use_peft);
  EXPECT_EQ(full.training.learning_rate, 2e-5);
  EXPECT_FALSE(value_of(R"({"preset": "lora"})", {{"preset", "null"}}).lora.use_peft);
}

TEST(Presets, WithNoSuchNameAreAnError) {
  EXPECT_THAT(complaint_about(R"({"preset": "lorra"})"),
              AllOf(HasSubstr("\"preset\" expected one of lora, qlora, full, pretrain"), HasSubstr("did you mean")));
}

}  // namespace
}  // namespace qtrain
