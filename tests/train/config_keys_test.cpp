// Every key of the reference libraries, with the defaults they give it (make_reference_keys.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "train/config/config.h"

namespace qtrain {
namespace {

using testing::IsEmpty;

const Json& reference() {
  static const Json json = read_json(std::string(QTRAIN_SOURCE_DIR) + "/tests/train/data/reference_keys.json");
  return json;
}

Json values_of(const ResolvedConfig& config) {
  Json values = Json::object();
  const Json resolved = resolved_json(config);
  for (const auto& [key, entry] : resolved.at("values").items()) values[key] = entry.at("value");
  return values;
}

std::string one_key(const std::string& key, const Json& value) {
  return Json{{key, value}}.dump();
}

// Users' files are often dumps of all arguments: each default has to pass without an error and without a remark.
TEST(ReferenceKeys, EachIsAcceptedWithItsDefault) {
  std::size_t tried = 0;
  for (const char* cls : {"SFTConfig", "ModelConfig", "ScriptArguments", "LoraConfig", "BitsAndBytesConfig"})
    for (const auto& [key, value] : reference().at(cls).items()) {
      ResolvedConfig config;
      ASSERT_NO_THROW(config = parse_config(one_key(key, value), "c.json")) << cls << "." << key;
      EXPECT_THAT(config.inert, IsEmpty()) << cls << "." << key << " = " << value;
      ++tried;
    }
  EXPECT_GT(tried, 180u);
}

TEST(ReferenceKeys, AFullDumpOfSftConfigIsTheDefaultConfig) {
  const Json dump = reference().at("SFTConfig");
  EXPECT_EQ(values_of(parse_config(dump.dump(), "c.json")), values_of(parse_config("{}", "c.json")));
}

// Keys whose default differs on purpose, or is another way to write the same.
const std::set<std::string>& spelled_differently() {
  static const std::set<std::string> keys{
      "output_dir",              // None there, and then "trainer_output"
      "bf16",                    // None there: on unless fp16
      "lr_scheduler_kwargs",     // None there: no arguments
      "report_to",               // "none" there
      "disable_tqdm",            // None there: by log level
      "resume_from_checkpoint",  // None there: qtrain resumes by default
  };
  return keys;
}

TEST(ReferenceKeys, DefaultsAreThoseOfSftConfig) {
  const Json ours = values_of(parse_config("{}", "c.json"));
  std::size_t compared = 0;
  for (const auto& [key, value] : reference().at("SFTConfig").items()) {
    if (!ours.contains(key) || spelled_differently().contains(key)) continue;
    EXPECT_EQ(ours.at(key), value) << key;
    ++compared;
  }
  EXPECT_GT(compared, 40u);
  EXPECT_EQ(ours.at("output_dir"), "trainer_output");
  EXPECT_EQ(ours.at("bf16"), true);
  EXPECT_EQ(ours.at("dtype"), reference().at("ModelConfig").at("dtype"));
}

TEST(ReferenceKeys, AdapterDefaultsAreThoseOfLoraConfig) {
  const Config ours = parse_config("{}", "c.json").value;
  const Json& lora = reference().at("LoraConfig");
  EXPECT_EQ(ours.lora.lora_r, lora.at("r"));
  EXPECT_EQ(ours.lora.lora_alpha, lora.at("lora_alpha"));
  EXPECT_EQ(ours.lora.lora_dropout, lora.at("lora_dropout"));
  EXPECT_EQ(ours.lora.use_rslora, lora.at("use_rslora"));
}

TEST(ReferenceKeys, NamesOfChoicesAreThoseOfTransformers) {
  for (const Json& name : reference().at("optimizers"))
    EXPECT_NO_THROW(parse_config(one_key("optim", name), "c.json")) << name;
  std::set<std::string> schedules;
  for (const auto name : schedule_names()) schedules.emplace(name);
  EXPECT_EQ(schedules, reference().at("schedulers").get<std::set<std::string>>());
  for (const Json& name : reference().at("eval_strategies"))
    EXPECT_NO_THROW(parse_config(Json{{"eval_strategy", name}, {"eval_file", "e.jsonl"}}.dump(), "c.json")) << name;
  for (const Json& name : reference().at("save_strategies"))
    EXPECT_NO_THROW(parse_config(
        Json{{"save_strategy", name}, {"eval_strategy", "epoch"}, {"eval_file", "e.jsonl"}}.dump(), "c.json"))
        << name;
}

// Names that earlier releases had and users' files still hold.
TEST(ReferenceKeys, OldNamesAreUnderstood) {
  const auto value = [](const char* json) { return parse_config(json, "c.json").value; };
  EXPECT_EQ(value(R"({"group_by_length": true})").training.train_sampling_strategy, Sampling::group_by_length);
  EXPECT_EQ(value(R"({"evaluation_strategy": "epoch", "eval_file": "e"})").training.eval_strategy, EvalStrategy::epoch);
  EXPECT_EQ(value(R"({"warmup_ratio": 0.1})").training.warmup_ratio, 0.1);
  EXPECT_EQ(value(R"({"activation_checkpointing": false})").training.gradient_checkpointing.policy, "none");
  EXPECT_EQ(value(R"({"torch_dtype": "torch.bfloat16"})").model.dtype, "bfloat16");
  EXPECT_EQ(value(R"({"no_cuda": true})").run.device, DeviceChoice::cpu);
  EXPECT_EQ(value(R"({"overwrite_output_dir": true})").training.resume_from_checkpoint, "never");
  EXPECT_EQ(value(R"({"save_safetensors": true})").training.output_dir, "trainer_output");
}

}  // namespace
}  // namespace qtrain
