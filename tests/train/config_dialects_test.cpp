// Files of other programs in JSON: expert manifests and ModelForge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/config_support.h"

namespace qtrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ConfigDialects, EachHasItsOwnDefaults) {
  const Config hf = value_of("{}");
  EXPECT_EQ(hf.training.max_grad_norm, 1.0);
  EXPECT_EQ(hf.training.optim, "adamw_torch_fused");
  EXPECT_EQ(hf.training.lr_scheduler_type, ScheduleKind::linear);
  EXPECT_EQ(hf.lora.lora_alpha, 8);

  const ResolvedConfig forge = parse_config(
      R"({"provider": "huggingface", "model_name": "m", "dataset": "d.jsonl", "use_4bit": false, "lora_r": 64})",
      "c.json");
  EXPECT_EQ(forge.dialect, "modelforge");
  EXPECT_EQ(forge.value.training.max_grad_norm, 0.3);
  EXPECT_EQ(forge.value.training.optim, "paged_adamw_32bit");
  EXPECT_EQ(forge.value.training.lr_scheduler_type, ScheduleKind::cosine);
  EXPECT_EQ(forge.value.lora.lora_alpha, 32);
  EXPECT_EQ(forge.value.lora.lora_r, 64);
  EXPECT_TRUE(forge.value.lora.use_peft);
  EXPECT_EQ(forge.value.model.model_name_or_path, "m");
  EXPECT_EQ(forge.value.training.eval_strategy, EvalStrategy::steps);  // it holds rows out
  EXPECT_EQ(forge.origin.at("max_grad_norm"), "default (modelforge)");
  EXPECT_THAT(forge.notes[0], HasSubstr("dialect modelforge"));
}

constexpr std::string_view kManifest = R"({
  "name": "sql", "version": "1.0", "description": "", "capabilities": [], "constraints": {}, "license": null,
  "base_model": {"name": "models/base", "quantization": "int4", "sha256": null},
  "training": {
    "dataset": {"path": "train.jsonl", "validation_path": "eval.jsonl", "type": "single", "field_mapping": {"text": "body"}},
    "config": {
      "method": "sft", "adapter_type": "lora", "rank": 16, "alpha": 32, "dropout": 0.05, "target_modules": ["q_proj", "v_proj"],
      "epochs": 2.5, "learning_rate": 1e-4, "batch_size": 4, "gradient_accumulation_steps": 2, "warmup_steps": 10,
      "lr_scheduler": "cosine", "max_seq_length": 512, "use_tf32": true, "use_sdpa": true, "use_unsloth": true,
      "gradient_checkpointing": "selective", "evaluation_strategy": "steps", "eval_steps": 5, "save_strategy": "steps",
      "save_steps": 10, "pretokenized_cache": "cache", "dataloader_prefetch_factor": 4, "packing": true
    },
    "decoding": {"temperature": 0.7}, "metadata": null
  }
})";

TEST(ConfigDialects, ExpertManifest) {
  const ResolvedConfig r = parse_config(kManifest, "c.json");
  const Config& c = r.value;
  EXPECT_EQ(r.dialect, "expert");
  EXPECT_EQ(c.model.model_name_or_path, "models/base");
  EXPECT_TRUE(c.quant.load_in_4bit);
  EXPECT_THAT(c.data.dataset_name, ElementsAre("train.jsonl"));
  EXPECT_THAT(c.data.eval_dataset_name, ElementsAre("eval.jsonl"));
  EXPECT_EQ(c.data.dataset_text_field, "body");
  EXPECT_TRUE(c.lora.use_peft);
  EXPECT_EQ(c.lora.lora_r, 16);
  EXPECT_EQ(c.lora.lora_alpha, 32);
  EXPECT_EQ(c.lora.lora_dropout, 0.05);
  EXPECT_EQ(c.training.num_train_epochs, 2.5);
  EXPECT_EQ(c.training.per_device_train_batch_size, 4);
  EXPECT_EQ(c.training.per_device_eval_batch_size, 4);
  EXPECT_EQ(c.training.lr_scheduler_type, ScheduleKind::cosine);
  EXPECT_EQ(c.training.tf32, true);
  EXPECT_EQ(c.training.gradient_checkpointing.policy, "selective");
  EXPECT_EQ(c.training.eval_strategy, EvalStrategy::steps);
  EXPECT_EQ(c.training.save_total_limit, 3);  // the dialect's default
  EXPECT_EQ(c.data.max_length, 512);
  EXPECT_EQ(r.origin.at("num_train_epochs"), "c.json:8 (training.config.epochs)");
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"training.config.use_unsloth\" has no effect")));
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"training.config.use_sdpa\" has no effect")));
}

TEST(ConfigDialects, ExpertKeysMayStandAtTheTop) {
  const ResolvedConfig r = parse_config(
      R"({"model_name_or_path": "m", "train_file": "t", "eval_file": "e", "batch_size": 2, "epochs": 1})", "c.json");
  EXPECT_EQ(r.dialect, "expert");
  EXPECT_EQ(r.value.training.eval_strategy, EvalStrategy::epoch);
  EXPECT_TRUE(r.value.training.load_best_model_at_end);
}

TEST(ConfigDialects, ExpertPartsThatCannotBeHonoured) {
  EXPECT_THAT(complaint_about(R"({"training": {"config": {"adapter_type": "ia3"}}})"),
              HasSubstr("\"ia3\" is not available; available: lora"));
  EXPECT_THAT(complaint_about(R"({"epochs": 1, "base_models": [{"name": "a"}, {"name": "b"}]})"),
              HasSubstr("several base models"));
  EXPECT_THAT(complaint_about(R"({"epochs": 1, "soft_prompts": [{"name": "p"}]})"),
              HasSubstr("soft prompts are not available"));
  EXPECT_THAT(complaint_about(R"({"training": {"dataset": {"path": "a", "field_mapping": {"instruction": "q"}}}})"),
              HasSubstr("rename the field"));
  EXPECT_THAT(complaint_about("{\"training\": {\n\"config\": {\n\"epoch\": 1}}}"),
              StartsWith("c.json:3: unknown key \"training.config.epoch\""));
  EXPECT_EQ(parse_config(R"({"epochs": 1, "base_models": [{"name": "a"}]})", "c").value.model.model_name_or_path, "a");
}

TEST(ConfigDialects, AreNeverMixed) {
  EXPECT_THAT(complaint_about(R"({"epochs": 1, "use_4bit": false})"), HasSubstr("their defaults differ"));
  EXPECT_EQ(parse_config(R"({"dialect": "hf", "epochs": 1, "use_4bit": false})", "c").dialect, "hf");
  EXPECT_EQ(parse_config("{}", "c", {{"dialect", "modelforge"}}).value.training.max_grad_norm, 0.3);
  EXPECT_THAT(complaint_about(R"({"dialect": "axolottle"})"),
              HasSubstr("choose one of hf, expert, modelforge, llamafactory, axolotl"));
}

// Keys that have no effect anywhere must not change the defaults of a file with canonical names.
TEST(ConfigDialects, KeysWithoutEffectDoNotDecide) {
  const ResolvedConfig r = parse_config(
      R"({"model_name_or_path": "m", "dataset_name": "d", "use_unsloth": true, "provider": "unsloth", "use_liger_kernel": true,
          "use_sdpa": true, "use_cuda_graphs": true, "eval_split": 0.1})",
      "c.json");
  EXPECT_EQ(r.dialect, "hf");
  EXPECT_EQ(r.value.training.learning_rate, 2e-5);
  for (const char* key : {"use_unsloth", "provider", "use_liger_kernel"}) EXPECT_TRUE(r.inert.contains(key)) << key;
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"provider\" has no effect")));
}

TEST(ConfigDialects, ObjectsOfThePythonLibraries) {
  const Config c =
      value_of(R"({"model_name_or_path": "m", "peft_config": {"r": 4, "lora_alpha": 16, "target_modules": "all-linear",
      "task_type": "CAUSAL_LM"}, "quantization_config": {"load_in_4bit": true, "bnb_4bit_compute_dtype": "torch.bfloat16"},
      "model_init_kwargs": {"dtype": "bfloat16", "attn_implementation": null}})");
  EXPECT_TRUE(c.lora.use_peft);
  EXPECT_EQ(c.lora.lora_r, 4);
  EXPECT_THAT(c.lora.lora_target_modules, ElementsAre("all-linear"));
  EXPECT_EQ(c.quant.bnb_4bit_compute_dtype, "bfloat16");
  EXPECT_EQ(c.model.dtype, "bfloat16");
}

// What is dumped can be read again and means the same.
TEST(ConfigDump, IsAConfigAgain) {
  const ResolvedConfig first = parse_config(kManifest, "c.json");
  Json flat = {{"dialect", "hf"}};
  const Json resolved = resolved_json(first);
  for (const auto& [key, entry] : resolved.at("values").items()) flat[key] = entry.at("value");
  const Json again = resolved_json(parse_config(flat.dump(), "again.json"));
  for (const auto& [key, entry] : resolved.at("values").items())
    EXPECT_EQ(again.at("values").at(key).at("value"), entry.at("value")) << key;
}

}  // namespace
}  // namespace qtrain
