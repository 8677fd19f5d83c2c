// Files of other programs in JSON: expert manifests and ModelForge.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/config/support.h"

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
  EXPECT_EQ(hf.lora.lora_alpha, 32);
  EXPECT_EQ(parse_config(R"({"epochs": 1})", "c.json").value.lora.lora_alpha, 8);

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

// As the manifests of published experts are: comments beside most keys, and what is told about data and results.
constexpr std::string_view kPublishedManifest = R"({
  "name": "expert-poems", "version": "0.1.0", "schema_version": "2.0", "author": "somebody", "homepage": "a",
  "base_models": [{
    "name": "models/Qwen3-0.6B", "sha256": "", "quantization": "int4", "prompt_template": "chatml",
    "rope_scaling": {"type": "ntk-by-parts", "factor": 8.0, "_comment": "as the runtime has it"},
    "adapters": [{"type": "dora", "r": 12, "alpha": 24, "path": "final", "_comment": "what was trained"}]
  }],
  "soft_prompts": [], "capabilities": ["task:poems"], "limitations": [{"pattern": "sonnets", "workaround": "none"}],
  "quality_metrics": {"benchmark_score": 8.9, "_comment": "18 questions"}, "routing": {"keywords": ["poem"]},
  "constraints": {"max_chain": 10}, "perf": {"vram_mb_overhead": 18}, "runtime": {"attention_kernel": "flash-v2"},
  "training": {
    "dataset": {
      "path": "datasets/train.jsonl", "format": "jsonl", "streaming": false, "source": "multi-source",
      "sources": [{"name": "somebody/poems", "processed_examples": 99}],
      "preprocessing": {"total_examples": 120, "deduplication": "by_question", "splits": {"train": 99}},
      "splits": {"train": 99, "validation": 0}, "task_distribution": {"poem": 99},
      "format_distribution": {"chatml": 99}, "_comment": "counted", "field_mapping": {"text": "text", "_comment": ""}
    },
    "config": {
      "method": "sft", "adapter_type": "dora", "use_unsloth": true, "_unsloth_comment": "twice as fast",
      "rank": 12, "alpha": 24, "dropout": 0.1, "target_modules": ["q_proj", "v_proj"], "epochs": 1.5,
      "learning_rate": 5e-5, "batch_size": 2, "gradient_accumulation_steps": 45, "warmup_steps": 0,
      "warmup_ratio": 0.1, "lr_scheduler": "cosine", "max_seq_length": 1024, "dataloader_prefetch_factor": 1,
      "fp16": false, "bf16": true, "use_tf32": true, "use_sdpa": true, "flash_attention_2": false, "packing": true,
      "memory_efficient_attention": true, "memory_clear_every": 100, "torch_compile": false,
      "torch_compile_backend": "inductor", "optim": "adamw_bnb_8bit", "group_by_length": false, "logging_steps": 10,
      "save_strategy": "steps", "save_steps": 250, "save_total_limit": null, "evaluation_strategy": "steps",
      "eval_steps": 250, "load_best_model_at_end": true, "metric_for_best_model": "eval_loss",
      "greater_is_better": false, "gradient_checkpointing": false, "activation_checkpointing": "attention_only",
      "use_cuda_graphs": false, "cuda_graph_warmup_steps": 100
    },
    "decoding": {"use_grammar": true, "temperature": 0.7}, "trained_on": "2025-11-06", "checkpoint": "checkpoint-1000",
    "packaging_checkpoint": "checkpoint-1000", "base_model_version": "qwen3-0.6b-int4",
    "alternative_checkpoints": {"checkpoint-1250": {"step": 1250, "_comment": "also good"}}
  },
  "license": "apache-2.0", "tags": ["dora"]
})";

TEST(ConfigDialects, AManifestAsTheyArePublished) {
  const ResolvedConfig r = parse_config(kPublishedManifest, "m.json");
  const Config& c = r.value;
  EXPECT_EQ(r.dialect, "expert");
  EXPECT_EQ(c.model.model_name_or_path, "models/Qwen3-0.6B");
  EXPECT_TRUE(c.lora.use_peft && c.lora.use_dora);
  EXPECT_EQ(c.lora.lora_r, 12);
  EXPECT_EQ(c.training.gradient_checkpointing.policy, "selective");
  EXPECT_EQ(c.training.eval_strategy, EvalStrategy::no) << "there is nothing to evaluate on";
  EXPECT_FALSE(c.training.load_best_model_at_end);
  EXPECT_EQ(c.training.save_total_limit, std::nullopt);
  EXPECT_THAT(r.notes, Contains(HasSubstr("(training.config.evaluation_strategy): there are no evaluation rows")));
  const Json why = r.inert.at("training.config.memory_clear_every");
  EXPECT_EQ(why,
            (Json{{"value", 100}, {"origin", "m.json:25"}, {"reason", "memory is planned before the first step"}}));
  for (const char* told : {"base_models.rope_scaling", "base_models.prompt_template", "training.config.use_sdpa"})
    EXPECT_EQ(std::count_if(r.notes.begin(), r.notes.end(),
                            [&](const std::string& n) { return n.find(told) != std::string::npos; }),
              1)
        << told;
  for (const auto& [key, entry] : r.inert.items()) EXPECT_EQ(key.find("_comment"), std::string::npos) << key;
}

TEST(ConfigDialects, WhatOnlyDescribesIsListedWithItsReasonAndNotToldAtStart) {
  const ResolvedConfig r = parse_config(R"({"name": "sql", "description": null, "base_model": "m", "training": {
      "dataset": {"path": "d", "source": "web", "statistics": {"rows": 3}}, "trained_on": "2024-01-01",
      "config": {"epochs": 1}}})",
                                        "m.json");
  EXPECT_EQ(r.inert.at("name").at("value"), "sql");
  EXPECT_EQ(r.inert.at("training.trained_on"),
            (Json{{"value", "2024-01-01"},
                  {"origin", "m.json:2"},
                  {"reason", "it tells of a training that has been: nothing is trained by it"}}));
  EXPECT_EQ(r.inert.at("training.dataset.statistics").at("reason"),
            "it describes the rows, which are read as they are");
  EXPECT_TRUE(r.inert.contains("training.dataset.source"));
  EXPECT_FALSE(r.inert.contains("description"));
  EXPECT_EQ(r.notes.size(), 1u) << r.notes.back();
}

TEST(ConfigDialects, MembersThatBeginWithAnUnderscoreAreComments) {
  const Config c = value_of(R"({"_why": {"seed": 3}, "lr_scheduler_type": "cosine_with_min_lr",
      "lr_scheduler_kwargs": {"min_lr": 1e-6, "_note": "floor"}, "dataset_mixture": [{"path": "a", "_n": 1}]})");
  EXPECT_EQ(c.training.lr_scheduler_kwargs, (Json{{"min_lr", 1e-6}}));
  EXPECT_EQ(c.training.seed, 42);
  EXPECT_THAT(complaint_about(R"({"training": {"dataset": {"path": "a", "scource": "b"}}})"),
              HasSubstr("\"training.dataset.scource\": unknown key"));
}

TEST(ConfigDialects, AttentionAloneIsLessThanBlocksAndMoreThanNothing) {
  const auto policy = [](const char* keys) {
    return value_of(fmt::format("{{\"activation_checkpointing\": {}}}", keys)).training.gradient_checkpointing.policy;
  };
  EXPECT_EQ(policy(R"("attention_only", "gradient_checkpointing": false)"), "selective");
  EXPECT_EQ(policy(R"("attention_only")"), "selective");
  EXPECT_EQ(policy(R"("attention_only", "gradient_checkpointing": true)"), "block");
  EXPECT_EQ(policy("true"), "block");
  // The command line goes before the file, whichever of the keys it has.
  const Overrides attention{{"activation_checkpointing", "attention_only"}}, blocks{{"gradient_checkpointing", "true"}};
  const ResolvedConfig later = parse_config(R"({"gradient_checkpointing": true})", "c.json", attention);
  EXPECT_EQ(later.value.training.gradient_checkpointing.policy, "selective");
  EXPECT_THAT(later.notes, Contains(HasSubstr("c.json:1: \"gradient_checkpointing\" true has no effect: "
                                              "\"activation_checkpointing\" is given on the command line")));
  EXPECT_EQ(parse_config(R"({"activation_checkpointing": "attention_only"})", "c.json", blocks)
                .value.training.gradient_checkpointing.policy,
            "block");
}

// Files that are given in the place of a config, by the keys that their examples have.
TEST(ConfigErrors, OtherFilesSayWhatTheyAre) {
  EXPECT_EQ(complaint_about(R"({"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",
      "zero_optimization": {"stage": 2, "overlap_comm": true}, "bf16": {"enabled": "auto"}})"),
            "c.json: this is a DeepSpeed configuration, which does not say what is trained on what\n"
            "  write a config that names it: {\"model_name_or_path\": ..., \"dataset_name\": ..., \"deepspeed\": "
            "\"c.json\"}");
  for (const char* text :
       {R"({"zero_optimization": {"stage": 3}})", R"({"fp16": {"enabled": true}, "optimizer": {"type": "AdamW"}})"})
    EXPECT_THAT(complaint_about(text), HasSubstr("this is a DeepSpeed configuration"));
  EXPECT_THAT(complaint_about(R"({"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP"})"),
              HasSubstr("\"accelerate_config\": \"c.json\""));
  EXPECT_THAT(complaint_about(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64})"),
              HasSubstr("a model's config.json"));
  EXPECT_THAT(complaint_about(R"({"peft_type": "LORA", "base_model_name_or_path": "m", "r": 8})"),
              HasSubstr("\"adapter_name_or_path\": \".\""));
  // What names a model or rows, under whatever name, is a config.
  for (const char* key : {"output_dir", "model", "base_model_name", "dataset", "train_dataset", "dataset_path"})
    EXPECT_EQ(complaint_about(Json{{"peft_type", "LORA"}, {"task_type", "CAUSAL_LM"}, {key, "o"}}.dump()), "no error")
        << key;
  for (const char* other : {R"("base_models": [{"name": "a"}])", R"("dataset_mixture": ["a"])"})
    EXPECT_EQ(complaint_about(fmt::format(R"({{"peft_type": "LORA", "task_type": "CAUSAL_LM", {}}})", other)),
              "no error");
}

// As alignment-handbook and open-r1 write it, and as TRL does.
TEST(ConfigMixture, AnObjectAroundTheListOfDatasets) {
  const Config c = value_of(R"({"dataset_mixture": {"seed": 0, "test_split_size": 0.1, "datasets": [
      {"id": "rows/a", "config": "default", "split": "train", "columns": ["messages"], "weight": 1.0},
      {"id": "rows/b"}]}})");
  EXPECT_EQ(Json(c.data.dataset_mixture), Json::parse(R"([{"data_files": ["rows/a"], "columns": ["messages"]},
                            {"data_files": ["rows/b"]}])"));
  EXPECT_EQ(c.data.eval_split, 0.1);
  EXPECT_THAT(value_of(R"({"dataset_mixture": {"datasets": [{"path": "a"}]}})").data.dataset_name, ElementsAre("a"));
  EXPECT_THAT(complaint_about(R"({"dataset_mixture": {"datasets": [{"id": "a", "weight": 0.5}]}})"),
              HasSubstr("is a share of the source's own rows"));
  EXPECT_THAT(complaint_about(R"({"dataset_mixture": {"datsets": [], "sede": 1}})"),
              HasSubstr("unknown member \"datsets\"; unknown member \"sede\""));
  // A whole fraction says nothing, but beside others it is one.
  EXPECT_EQ(Json(value_of(R"({"datasets": [{"path": "a", "fraction": 1}, {"path": "b", "fraction": 0.5}]})")
                     .data.dataset_mixture),
            Json::parse(R"([{"data_files": ["a"], "fraction": 1}, {"data_files": ["b"], "fraction": 0.5}])"));
  EXPECT_THAT(value_of(R"({"datasets": [{"path": "a", "fraction": 1}]})").data.dataset_name, ElementsAre("a"));
}

TEST(ConfigDialects, DefaultsThatNobodyWroteAreNotRemarkedOn) {
  const ResolvedConfig r = parse_config(
      R"({"provider": "huggingface", "model_name": "m", "dataset": "d.jsonl", "use_4bit": false, "packing": true})",
      "c");
  EXPECT_EQ(r.value.training.train_sampling_strategy, Sampling::group_by_length);
  for (const std::string& note : r.notes)
    EXPECT_EQ(note.find("train_sampling_strategy group"), std::string::npos) << note;
}

TEST(ConfigDialects, ExpertKeysMayStandAtTheTop) {
  const ResolvedConfig r = parse_config(
      R"({"model_name_or_path": "m", "train_file": "t", "eval_file": "e", "batch_size": 2, "epochs": 1})", "c.json");
  EXPECT_EQ(r.dialect, "expert");
  EXPECT_EQ(r.value.training.eval_strategy, EvalStrategy::epoch);
  EXPECT_TRUE(r.value.training.load_best_model_at_end);
}

TEST(ConfigDialects, ExpertPartsThatCannotBeHonored) {
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
