// Accepts every key of the reference libraries with its default there (make_reference_keys.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "config/config.h"

namespace qtrain {
namespace {

using ::testing::IsEmpty;

const Json& reference() {
  static const Json json = read_json(std::string(QTRAIN_SOURCE_DIR) + "/tests/config/data/reference_keys.json");
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

// Users' files are often dumps of all arguments, so each default must be accepted without an error or a remark.
TEST(ReferenceKeys, EachIsAcceptedWithItsDefault) {
  std::size_t tried = 0;
  for (const char* cls :
       {"SFTConfig", "ModelConfig", "ScriptArguments", "DatasetMixtureConfig", "LoraConfig", "BitsAndBytesConfig"})
    for (const auto& [key, value] : reference().at(cls).items()) {
      Json dump{{"use_peft", false}, {"load_in_4bit", false}};  // both are in such dumps too
      dump[key] = value;
      ResolvedConfig config;
      ASSERT_NO_THROW(parse_config(one_key(key, value), "c.json")) << cls << "." << key;
      ASSERT_NO_THROW(config = parse_config(dump.dump(), "c.json")) << cls << "." << key;
      EXPECT_THAT(config.diagnostics.ignored(), IsEmpty()) << cls << "." << key << " = " << value;
      ++tried;
    }
  EXPECT_GT(tried, 180u);
}

TEST(ReferenceKeys, AFullDumpOfSftConfigIsTheDefaultConfig) {
  const Json dump = reference().at("SFTConfig");
  EXPECT_EQ(values_of(parse_config(dump.dump(), "c.json")), values_of(parse_config("{}", "c.json")));
}

// Keys whose default differs on purpose, or is another spelling of the same value.
const std::set<std::string>& spelled_differently() {
  static const std::set<std::string> keys{
      "output_dir",              // None there, which then means "trainer_output"
      "bf16",                    // None there; here on unless fp16 is
      "lr_scheduler_kwargs",     // None there, which means no arguments
      "report_to",               // "none" there
      "disable_tqdm",            // None there, which means: by log level
      "resume_from_checkpoint",  // None there; qtrain resumes by default
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

TEST(ReferenceKeys, AdapterDefaultsAreThoseOfTheClassWhoseNamesAreUsed) {
  const Json &trl = reference().at("ModelConfig"), &peft = reference().at("LoraConfig");
  const auto expect = [](const char* config, const Json& of, const char* origin) {
    const ResolvedConfig r = parse_config(config, "c.json");
    const Config& ours = r.value;
    for (const auto& [key, value, theirs] :
         {std::tuple("lora_r", double(ours.lora.lora_r), of.contains("r") ? "r" : "lora_r"),
          std::tuple("lora_alpha", ours.lora.lora_alpha, "lora_alpha"),
          std::tuple("lora_dropout", ours.lora.lora_dropout, "lora_dropout")}) {
      if (r.given(key)) continue;
      EXPECT_EQ(value, of.at(theirs)) << key << " of " << config;
      EXPECT_EQ(r.origin.at(key), origin) << key << " of " << config;
    }
    EXPECT_EQ(ours.lora.use_rslora, of.at("use_rslora"));
    EXPECT_EQ(ours.lora.use_dora, of.at("use_dora"));
  };
  for (const char* config : {"{}", R"({"use_peft": true})", R"({"use_peft": true, "lora_r": 4})",
                             R"({"lora_alpha": 7})", R"({"lora_r": 4, "target_modules": ["q_proj"]})"})
    expect(config, trl, "default (trl sft)");
  for (const char* config : {R"({"use_peft": true, "r": 4})", R"({"r": 4, "lora_alpha": 7})",
                             R"({"use_peft": true, "target_modules": ["q_proj"]})", R"({"peft_config": {}})",
                             R"({"lora_config": {"lora_alpha": 7}})"})
    expect(config, peft, "default (LoraConfig)");
  const Config overridden = parse_config(R"({"r": 4})", "c.json", {{"lora_r", "6"}}).value;
  EXPECT_EQ(overridden.lora.lora_r, 6);
  EXPECT_EQ(overridden.lora.lora_alpha, peft.at("lora_alpha")) << "the file decides";
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

// Names from earlier releases that users' files still contain.
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

// Fields of transformers 4 (to 4.57), its Seq2SeqTrainingArguments and earlier TRL that version 5 no longer has, with
// their former defaults: a dump of such arguments is accepted without a remark.
constexpr const char* kOldDefaults = R"({
  "overwrite_output_dir": false, "evaluation_strategy": "no", "per_gpu_train_batch_size": null,
  "per_gpu_eval_batch_size": null, "logging_dir": null, "save_safetensors": true, "no_cuda": false,
  "use_mps_device": false, "jit_mode_eval": false, "use_ipex": false, "fp16_opt_level": "O1",
  "half_precision_backend": "auto", "fp16_backend": "auto", "tpu_num_cores": null, "tpu_metrics_debug": false,
  "past_index": -1, "fsdp_min_num_params": 0, "fsdp_transformer_layer_cls_to_wrap": null, "adafactor": false,
  "group_by_length": false, "push_to_hub_model_id": null, "push_to_hub_organization": null,
  "push_to_hub_token": null, "mp_parameters": "", "torchdynamo": null, "ray_scope": "last", "dispatch_batches": null,
  "split_batches": null, "include_tokens_per_second": false, "include_num_input_tokens_seen": false,
  "include_inputs_for_metrics": false, "sharded_ddp": "", "xpu_backend": null, "tp_size": 0, "warmup_ratio": 0.0,
  "skip_memory_metrics": true, "use_legacy_prediction_loop": false, "gradient_checkpointing_kwargs": null,
  "optim_target_modules": null, "local_rank": -1, "eval_accumulation_steps": null,
  "sortish_sampler": false, "predict_with_generate": false, "generation_max_length": null,
  "generation_num_beams": null, "generation_config": null,
  "max_seq_length": null, "dataset_batch_size": 1000, "num_of_sequences": null, "chars_per_token": null,
  "use_liger": false, "use_liger_kernel": false, "dataset_kwargs": null, "model_init_kwargs": null,
  "torch_dtype": null, "gradient_checkpointing_use_reentrant": false, "use_reentrant": false})";

TEST(ReferenceKeys, ADumpOfTransformers4Passes) {
  const Json old = Json::parse(kOldDefaults);
  for (const auto& [key, value] : old.items()) {
    ResolvedConfig config;
    ASSERT_NO_THROW(config = parse_config(one_key(key, value), "c.json")) << key;
    EXPECT_THAT(config.diagnostics.ignored(), IsEmpty()) << key << " = " << value;
  }
}

TEST(ConfigQuantization, TheComputeTypeDecidesWhereNothingElseDoes) {
  const auto training = [](const std::string& keys) {
    return parse_config(R"({"load_in_4bit": true, "bnb_4bit_compute_dtype": )" + keys + "}", "c").value.training;
  };
  EXPECT_TRUE(training(R"("float16")").fp16);
  EXPECT_FALSE(training(R"("float16")").bf16);
  EXPECT_TRUE(training(R"("bfloat16")").bf16);
  EXPECT_FALSE(training(R"("float32")").bf16);
  EXPECT_TRUE(training("null").bf16) << "the default";
  EXPECT_TRUE(training(R"("float16", "bf16": true)").bf16) << "the setting for all GEMMs counts";
  EXPECT_FALSE(training(R"("float16", "bf16": true)").fp16);
  EXPECT_THAT(parse_config(R"({"load_in_4bit": true, "bnb_4bit_compute_dtype": "float32", "bf16": true})", "c")
                  .diagnostics.notes(),
              ::testing::Contains(
                  ::testing::HasSubstr("c:1: \"bnb_4bit_compute_dtype\" has no effect: GEMMs are in bfloat16")));
  EXPECT_THAT(
      parse_config(R"({"bnb_4bit_compute_dtype": "float16"})", "c").diagnostics.notes(),
      ::testing::Contains(::testing::HasSubstr("\"bnb_4bit_compute_dtype\" has no effect: load_in_4bit is not true")));
}

}  // namespace
}  // namespace qtrain
